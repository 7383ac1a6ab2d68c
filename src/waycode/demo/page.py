"""The report of the demo, and its page: HTML that needs nothing but the pictures beside it."""

from dataclasses import dataclass
from html import escape
from string import Template

GENERATOR = "<title>Waycode demo</title>"  # by which a page of the demo is recognised


@dataclass(frozen=True, kw_only=True)
class SectionReport:
    """Counts of a section, and the case in its picture."""

    name: str  # of the section; this and the next four as in `Section`
    title: str
    asked: str
    look: str
    criterion: str  # when a case counts as success
    found: str  # measures of the case in the picture, as a sentence
    objective: str  # as `waycode plan --objective` takes it; "" if the tokens come from another scene
    picture: str  # file name, beside the page
    data: str  # dataset of the scene in the picture
    scene_id: str
    scene_index: int  # in the dataset
    agent_id: str
    tokens: tuple[int, ...]
    status: str  # `PlanStatus` of the plan in the picture
    costs: dict[str, float]  # of that plan, by term of the objective
    success: bool  # of the case in the picture
    num_success: int
    num_cases: int
    counts: dict[str, tuple[int, int]]  # group of cases -> (successes, cases), with groups counted separately
    counted_as: str  # command that counts the same cases by the same measure; "" if there is none
    plan_ms: float  # of search, or of decoding if the tokens come from another scene


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """The page and its contents."""

    page: str  # path
    model: str  # name or folder
    sections: tuple[SectionReport, ...]
    missing: tuple[str, ...]  # titles of sections without cases
    gallery: str  # file name of the sheet of scenes, beside the page
    families: tuple[str, ...]  # of road networks, one scene each on the sheet


def page_of(report: DemoReport) -> str:
    """The page as HTML."""
    return _PAGE.substitute(
        sections="\n".join(_section(section) for section in report.sections),
        links=" ".join(f'<a href="#{escape(one.name)}">{escape(one.title)}</a>' for one in report.sections),
        missing="".join(f"<p>These scenes have no case for “{escape(title)}”.</p>" for title in report.missing),
        model=escape(report.model),
        gallery=escape(report.gallery),
        families=escape(", ".join(name.replace("_", " ") for name in report.families)),
        count=len(report.families),
    )


def _section(section: SectionReport) -> str:
    groups = [f"{group}: {successes} of {cases}" for group, (successes, cases) in section.counts.items() if cases]
    facts = {
        "cases": "; ".join(groups),
        "objective": section.objective or "none: tokens copied",
        "tokens": " ".join(map(str, section.tokens)),
        "cost": ", ".join(f"{name} {value:.3g}" for name, value in section.costs.items()),
        "status": section.status,
        "scene": f"{section.scene_id}, {section.agent_id}",
    }
    command = f"waycode plan {section.data} --index {section.scene_index} --agent {section.agent_id}"
    command += f' --objective "{section.objective}" --out {section.picture}'
    return _SECTION.substitute(
        name=escape(section.name),
        title=escape(section.title),
        asked=escape(section.asked),
        found=escape(section.found),
        look=escape(section.look),
        picture=escape(section.picture),
        badge="did" if section.success else "did-not",
        success="success" if section.success else "failure",
        share=f"{section.num_success} of {section.num_cases} plans succeed",
        criterion=escape(section.criterion),
        counted_as=f", counted as in <code>{escape(section.counted_as)}</code>" if section.counted_as else "",
        facts="".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items() if value),
        command=f"<pre>{escape(command)}</pre>" if section.objective else "",
    )


_SECTION = Template("""\
<section id="$name">
  <h2>$title</h2>
  <p>$asked</p>
  <p><strong>$share</strong>$counted_as. A plan succeeds if it $criterion.</p>
  <a class="picture" href="$picture"><img src="$picture" alt="$title: $found" loading="lazy"></a>
  <p>The plan in the picture is a <span class="$badge">$success</span>. <strong>$found</strong> $look</p>
  <dl>$facts</dl>
  $command
</section>""")

_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Waycode demo</title>
<style>
  :root { --paper: #fbfaf8; --card: #ffffff; --ink: #2e3440; --faint: #6b7280; --line: #e3e0d9; --accent: #e8542f;
          --blue: #2b6fd6; --green: #14945a; --violet: #6a4fa3; }
  * { box-sizing: border-box; }
  html { scroll-behavior: smooth; }
  body { margin: 0 auto; max-width: 1320px; padding: 3rem 1.5rem; background: var(--paper); color: var(--ink);
         font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
  h1 { margin: 0 0 .5rem; font-size: 2rem; letter-spacing: -.02em; }
  h1 span { color: var(--accent); }
  p { max-width: 52rem; margin: .4rem 0; }
  nav { margin: 1.2rem 0 2rem; display: flex; flex-wrap: wrap; gap: .5rem; }
  nav a { color: var(--ink); text-decoration: none; background: var(--card); border: 1px solid var(--line);
          border-radius: 999px; padding: .2rem .9rem; font-size: .92rem; }
  nav a:hover { border-color: var(--accent); }
  section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1.3rem 1.5rem;
            margin-bottom: 1.6rem; }
  h2 { margin: 0; font-size: 1.3rem; }
  .did, .did-not { font-size: .8rem; font-weight: 600; border-radius: 999px; padding: .1rem .7rem; color: #fff; }
  .did { background: var(--green); }
  .did-not { background: #b3362b; }
  .picture { display: block; overflow-x: auto; margin: .8rem 0; }
  img { display: block; width: 100%; min-width: 760px; height: auto; border-radius: 6px; }
  dl { display: flex; flex-wrap: wrap; gap: .3rem 1.8rem; margin: .8rem 0 0; font-size: .88rem; }
  dl div { display: flex; gap: .45rem; }
  dt { color: var(--faint); white-space: nowrap; }
  dd { margin: 0; overflow-wrap: anywhere; }
  pre { margin: .8rem 0 0; padding: .6rem .9rem; background: var(--paper); border: 1px solid var(--line);
        border-radius: 8px; font-size: .82rem; overflow-x: auto; }
  .blue { color: var(--blue); } .green { color: var(--green); } .violet { color: var(--violet); }
</style>
</head>
<body>
<header>
<h1>Way<span>code</span> demo</h1>
<p>A model that has learnt to imitate drivers does what is usual. Often something else is wanted: this turn, that goal,
no lane change now. Training a model for each wish is slow; steering by gradients needs wishes that have one. Here one
trained model is asked for different things, each by a cost that it has never seen, and a short search answers.</p>
<p>A decoder turns three tokens of three bits, given a scene, into 8 seconds of driving. Greedy search plans by choosing
these tokens: it decodes all 8 values of the first token and keeps the best, then all 8 of the second, then all 8 of
the third: 24 decoded trajectories per plan. Each picture shows the search from left to right, a panel per token:
<b class="violet">candidates</b>, dashed if the model is too uncertain about them, and the chosen one in
<b class="green">green</b>. The last panel compares the plan (<b class="green">found</b>) with the recording
(<b class="blue">original</b>). The planned car is orange and drives upwards.</p>
<p>Model <code>$model</code>, on generated scenes that it was not trained on. Where a section names a command, its
cases, plans and measure are those of that command's table, in the row of greedy search with all tokens. Each picture
shows a success if there is one.</p>
<nav>$links <a href="#scenes">The scenes</a></nav>
</header>
<main>
$sections
$missing
<section id="scenes">
  <h2>The scenes</h2>
  <p>$count families of road networks: $families. Faded lines behind road users are their past, lines ahead
  their future; the ego is orange, and tracks to predict have a yellow ring.</p>
  <a class="picture" href="$gallery"><img src="$gallery" alt="One scene of each family" loading="lazy"></a>
</section>
</main>
</body>
</html>
""")
