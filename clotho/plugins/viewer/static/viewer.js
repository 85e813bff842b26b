// Brings the parts of a page that change up to date, unfolds, and knows keys. Without it, pages are whole; reload them.
"use strict";

const PERIOD = 2000;
const regions = [...document.querySelectorAll("[data-live][id]")];

function inUse(region) {
  const selection = document.getSelection();
  const selected = selection && !selection.isCollapsed && region.contains(selection.anchorNode);
  return selected || (region !== document.activeElement && region.contains(document.activeElement));
}

function renew(region, fresh) {
  if (region.innerHTML === fresh.innerHTML) return;
  if (inUse(region)) return;
  const states = [...region.querySelectorAll("details[id], input[type=checkbox][id]")];
  region.replaceChildren(...document.importNode(fresh, true).childNodes);
  for (const before of states) {
    const now = document.getElementById(before.id);
    if (now) Object.assign(now, before.localName === "details" ? { open: before.open } : { checked: before.checked });
  }
}

/** Whether there is more to come. */
async function refresh() {
  if (document.hidden) return true;
  const answer = await fetch(location.href, { redirect: "error" });
  if (!answer.ok) return true;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const region of regions) {
    const fresh = page.getElementById(region.id);
    if (fresh) renew(region, fresh);
  }
  return page.querySelector("[data-live]") !== null || regions.some(inUse);
}

async function follow() {
  for (;;) {
    await new Promise((done) => setTimeout(done, PERIOD));
    try {
      const more = await refresh();
      document.body.classList.remove("away");
      if (!more) return;
    } catch {
      document.body.classList.add("away");
    }
  }
}

for (const button of document.querySelectorAll("[data-expand]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const all = [...document.querySelectorAll("details:not(.outline)")];
    const open = all.some((each) => !each.open);
    for (const each of all) each.open = open;
    button.textContent = open ? "Fold all" : "Unfold all";
  });
}

/** Scroll to the next turn, or the one before; beyond the last one of this page, to those of the next. */
function go(forward) {
  const turns = [...document.querySelectorAll("article.turn")];
  const bar = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop);
  const tops = turns.map((each) => each.getBoundingClientRect().top - bar);
  const at = forward ? tops.findIndex((top) => top > 4) : tops.findLastIndex((top) => top < -4);
  const end = document.querySelector(`.pages a[rel=${forward ? "next" : "prev"}]`);
  const below = window.scrollY + window.innerHeight >= document.documentElement.scrollHeight - 2;
  if (at < 0 || (forward && below)) {
    if (end && turns.length) end.click();
    return;
  }
  turns[at].scrollIntoView();
  history.replaceState(null, "", `#${turns[at].id}`);
}

function press(key) {
  const target = document.querySelector(`[data-key="${key}"]`);
  if (key === "j" || key === "k") go(key === "j");
  else if (key === "?") document.getElementById("keys").showModal();
  else if (target && target.type === "search") target.focus();
  else if (target) target.click();
  else if (key === "u") location.href = "/";
  else return false;
  return true;
}

document.addEventListener("keydown", (event) => {
  const writes = event.target.closest("input:not([type=checkbox], [type=radio]), select, textarea, dialog");
  if (writes || event.ctrlKey || event.metaKey || event.altKey || !"jknpure/?".includes(event.key)) return;
  if (press(event.key)) event.preventDefault();
});

for (const button of document.querySelectorAll("button.help")) {
  button.hidden = false;
  button.addEventListener("click", () => press("?"));
}

const outline = document.getElementById("outline");
if (outline && window.innerWidth < 1100) outline.open = false;

if (regions.length) follow();
