// Brings the parts of a page that change up to date, and unfolds. Without it, pages are whole; reload them.
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
  const open = [...region.querySelectorAll("details[open][id]")].map((each) => each.id);
  region.replaceChildren(...document.importNode(fresh, true).childNodes);
  for (const id of open) {
    const details = document.getElementById(id);
    if (details) details.open = true;
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
    const all = [...document.querySelectorAll("details")];
    const open = all.some((each) => !each.open);
    for (const each of all) each.open = open;
    button.textContent = open ? "Fold all" : "Unfold all";
  });
}

if (regions.length) follow();
