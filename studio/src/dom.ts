/** Elements from plain values: the page has no framework. */

type Child = Node | string | number | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

/** An element. `on…` attributes are listeners, `class` and `aria-…` attributes are set as they are, null ones are not. */
export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value as unknown as EventListener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  append(element, children);
  return element;
}

export function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces what an element contains. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

const ICONS: Record<string, string> = {
  play: "M5 3.5v9l7.5-4.5z",
  pause: "M4.5 3.5h2.5v9H4.5zM9 3.5h2.5v9H9z",
  back: "M11.5 3.5v9L5.5 8zM4 3.5h1.3v9H4z",
  left: "M10.5 3 5.5 8l5 5 1-1-4-4 4-4z",
  right: "m5.5 3 5 5-5 5-1-1 4-4-4-4z",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM7.4 1h1.2v2H7.4zm0 12h1.2v2H7.4zM1 7.4h2v1.2H1zm12 0h2v1.2h-2zM3 3.9 3.9 3l1.4 1.4-.9.9zm7.7 7.7.9-.9L13 12.1l-.9.9zM3 12.1l1.4-1.4.9.9L3.9 13zm7.7-7.7L12.1 3l.9.9-1.4 1.4z",
  moon: "M6 2a6 6 0 1 0 8 8 5.2 5.2 0 0 1-8-8z",
  plus: "M7.3 3h1.4v4.3H13v1.4H8.7V13H7.3V8.7H3V7.3h4.3z",
  minus: "M3 7.3h10v1.4H3z",
  fit: "M2.5 2.5h4v1.3H3.8v2.7H2.5zm7 0h4v4h-1.3V3.8H9.5zM2.5 9.5h1.3v2.7h2.7v1.3h-4zm9.7 0h1.3v4h-4v-1.3h2.7z",
  close: "m4 3 4 4 4-4 1 1-4 4 4 4-1 1-4-4-4 4-1-1 4-4-4-4z",
  menu: "M2 4h12v1.4H2zm0 3.3h12v1.4H2zm0 3.3h12V12H2z",
};

/** A small picture beside or instead of a word. */
export function icon(name: keyof typeof ICONS | string): SVGElement {
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("viewBox", "0 0 16 16");
  picture.setAttribute("aria-hidden", "true");
  picture.classList.add("icon");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name] ?? "");
  picture.append(path);
  return picture;
}

/** Saves a file. */
export function download(name: string, content: Blob): void {
  const link = h("a", { href: URL.createObjectURL(content), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Copies a text; false if the browser does not allow it. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
