"""The page of the demo: every story with its picture, and the scenes. It needs nothing but the pictures beside it."""

from html import escape
from string import Template

from waycode.demo.report import DemoReport, StoryReport


def page_of(report: DemoReport) -> str:
    """The page as HTML."""
    return _PAGE.substitute(
        stories="\n".join(_section(story) for story in report.stories),
        links=" ".join(f'<a href="#{escape(story.name)}">{escape(story.title)}</a>' for story in report.stories),
        missing="".join(f"<p>No car of these scenes fits “{escape(title)}”.</p>" for title in report.missing),
        model=escape(report.model),
        gallery=escape(report.gallery),
        families=escape(", ".join(name.replace("_", " ") for name in report.families)),
        count=len(report.families),
    )


def _section(story: StoryReport) -> str:
    facts = {
        "objective": story.objective or "none: tokens copied",
        "tokens": " ".join(map(str, story.tokens)),
        "cost": ", ".join(f"{name} {value:.3g}" for name, value in story.costs.items()),
        "status": story.status,
        "scene": f"{story.scene_id}, {story.agent_id}",
    }
    return _STORY.substitute(
        name=escape(story.name),
        title=escape(story.title),
        asked=escape(story.asked),
        found=escape(story.found),
        look=escape(story.look),
        criterion=escape(story.criterion),
        picture=escape(story.picture),
        badge="did" if story.did else "did-not",
        did="did it" if story.did else "did not do it",
        share=f"{story.did_it} of {story.num_actors}",
        facts="".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items() if value),
        command=_command(story),
    )


def _command(story: StoryReport) -> str:
    """What to type to get the same plan again."""
    if not story.objective:
        return ""
    words = f"waycode plan sample --index {story.scene_index} --agent {story.agent_id}"
    return f'<pre>{escape(words)} --objective "{escape(story.objective)}" --plot {escape(story.picture)}</pre>'


_STORY = Template("""\
<section id="$name">
  <h2>$title <span class="$badge">$did</span></h2>
  <p>$asked</p>
  <a class="picture" href="$picture"><img src="$picture" alt="$title: $found" loading="lazy"></a>
  <p><strong>$found</strong> $look</p>
  <dl>$facts<div><dt>did it</dt><dd>$share cars that fit; shown is the best of them</dd></div>
  <div><dt>counts as done</dt><dd>$criterion</dd></div></dl>
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
  h2 { margin: 0; font-size: 1.3rem; display: flex; align-items: center; gap: .7rem; flex-wrap: wrap; }
  h2 span { font-size: .8rem; font-weight: 600; border-radius: 999px; padding: .05rem .7rem; color: #fff; }
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
<p>A decoder turns three tokens of three bits, given a scene, into 8 seconds of driving. To plan is to search these
tokens: all 8 values of the first are decoded, the best is kept, then all 8 of the second, and so on: 24 decodes for a
plan. Each picture shows this from left to right, a panel per token: <b class="violet">candidates</b>, dashed those of
which the model itself is not sure enough, and in <b class="green">green</b> the one that the search goes on with. The
last panel compares what was <b class="green">found</b> with what was <b class="blue">recorded</b>. The planned car
drives up and is orange.</p>
<p>Model <code>$model</code>, generated scenes that it was not trained on. “Did it” is measured on the trajectory, not
read from the cost.</p>
<nav>$links <a href="#scenes">The scenes</a></nav>
</header>
<main>
$stories
$missing
<section id="scenes">
  <h2>The scenes</h2>
  <p>$count families of road networks: $families. What fades behind road users is their past, what runs ahead their
  future; the ego is orange, and those to predict have a yellow ring.</p>
  <a class="picture" href="$gallery"><img src="$gallery" alt="One scene of each family" loading="lazy"></a>
</section>
</main>
</body>
</html>
""")
