/** Tokens as digits: a token of D dimensions with L levels each is a number of D digits in base L. */

/** The digits of a token id, the first dimension first. */
export function digitsOf(id: number, levels: number, dimensions: number): number[] {
  const digits: number[] = [];
  for (let rest = id, place = 0; place < dimensions; place++) {
    digits.unshift(rest % levels);
    rest = Math.floor(rest / levels);
  }
  return digits;
}

export function idOf(digits: number[], levels: number): number {
  return digits.reduce((id, digit) => id * levels + digit, 0);
}

/** The id after one of its digits went to the next level; with two levels a bit is flipped. */
export function toggled(id: number, dimension: number, levels: number, dimensions: number): number {
  const digits = digitsOf(id, levels, dimensions);
  digits[dimension] = ((digits[dimension] ?? 0) + 1) % levels;
  return idOf(digits, levels);
}
