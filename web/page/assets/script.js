// Live updates, copy buttons and a few comforts. Everything on the page works without this file.
"use strict";

const KEPT_ATTRIBUTES = new Set(["open", "hidden"]);

// Make `old` look like `fresh` while keeping its nodes, so that focus and open details stay.
function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || (old.id || "") !== (fresh.id || "")) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const each of fresh.attributes) {
    if (old.getAttribute(each.name) !== each.value) old.setAttribute(each.name, each.value);
  }
  for (const each of [...old.attributes]) {
    if (!fresh.hasAttribute(each.name) && !KEPT_ATTRIBUTES.has(each.name)) old.removeAttribute(each.name);
  }
  const wanted = [...fresh.childNodes];
  const byId = new Map([...old.children].filter((each) => each.id).map((each) => [each.id, each]));
  wanted.forEach((child, index) => {
    let present = old.childNodes[index];
    const known = child.id && byId.get(child.id);
    if (known && known !== present) {
      old.insertBefore(known, present || null);
      present = known;
    }
    if (present) morph(present, child);
    else old.append(child);
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

function say(text) {
  const said = document.getElementById("said");
  if (said) said.textContent = text;
}

function sayings(root) {
  return [...root.querySelectorAll("[data-say]")].map((each) => each.textContent.trim()).filter(Boolean).join(" ");
}

const live = {
  isOn: sessionStorage.getItem("live") !== "off",
  timer: 0,
  answeredAt: new Date(),

  schedule() {
    clearTimeout(live.timer);
    const wait = Number(document.body.dataset.refreshMs) || 2000;
    if (live.isOn) live.timer = setTimeout(live.refresh, wait);
  },

  async refresh() {
    if (!document.hidden && document.querySelector("[data-live]")) {
      try {
        const answer = await fetch(live.address(), { headers: { Accept: "text/html" }, redirect: "error" });
        if (answer.ok && live.isOn) live.show(await answer.text());
        live.reached(true);
      } catch {
        live.reached(false);
      }
    }
    live.schedule();
  },

  // The page as it is now, without what an action had to say about it.
  address() {
    const address = new URL(document.body.dataset.livePath || location.href, location.href);
    address.hash = "";
    address.searchParams.delete("flash");
    return address;
  },

  show(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const before = sayings(document);
    for (const each of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(each.id);
      if (other) morph(each, document.importNode(other, true));
    }
    document.body.dataset.refreshMs = fresh.body.dataset.refreshMs;
    const now = sayings(document);
    if (now !== before) say(now);
  },

  reached(isReached) {
    const away = document.getElementById("away");
    if (isReached) live.answeredAt = new Date();
    else if (away.hidden) away.querySelector("time").textContent = live.answeredAt.toLocaleTimeString();
    away.hidden = isReached;
    document.body.classList.toggle("unreachable", !isReached);
    live.label(isReached);
  },

  label(isReached = true) {
    const button = document.getElementById("live-toggle");
    button.setAttribute("aria-pressed", String(live.isOn));
    const text = live.isOn ? (isReached ? "Live" : "No connection") : "Paused";
    if (button.textContent !== text) button.textContent = text;
  },

  start() {
    const button = document.getElementById("live-toggle");
    button.hidden = !document.querySelector("[data-live]");
    button.addEventListener("click", () => {
      live.isOn = !live.isOn;
      sessionStorage.setItem("live", live.isOn ? "on" : "off");
      live.label();
      live.schedule();
    });
    live.label();
    live.schedule();
  },
};

function copyButtons() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    const source = document.getElementById(button.dataset.copy);
    button.hidden = false;
    button.addEventListener("click", async () => {
      source.select();
      try {
        await navigator.clipboard.writeText(source.value);
      } catch {
        document.execCommand("copy"); // where the browser does not trust the address
      }
      button.textContent = "Copied";
      say("Copied");
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
}

function rowButtons() {
  for (const button of document.querySelectorAll("[data-add-row]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const rows = button.closest("[data-rows]").querySelectorAll("[data-row]");
      const row = rows[rows.length - 1].cloneNode(true);
      for (const each of row.querySelectorAll("input, select")) {
        const label = each.getAttribute("aria-label").replace(/\d+$/, String(rows.length + 1));
        each.setAttribute("aria-label", label);
        if (each.tagName === "INPUT") each.value = "";
      }
      button.before(row);
      row.querySelector("input").focus();
    });
  }
}

function selectAll() {
  for (const label of document.querySelectorAll("[data-select-all]")) {
    label.hidden = false;
    const box = label.querySelector("input");
    box.addEventListener("change", () => {
      for (const each of document.querySelectorAll("input[name=number]")) each.checked = box.checked;
    });
  }
}

// "/" goes to the search of the page, "j" and "k" to the next and the previous row; elsewhere keys are the browser's.
function keys() {
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea, [contenteditable]");
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
    if (event.key === "/") {
      const field = document.querySelector("[data-search], [role=search] input, .filter input[name=text]");
      if (!field) return;
      event.preventDefault();
      field.focus();
      field.select();
    } else if (event.key === "j" || event.key === "k") {
      const rows = [...document.querySelectorAll("main tbody tr:not(.more), main .timeline > li")];
      const links = rows.map((row) => row.querySelector("th a, a, summary, button")).filter(Boolean);
      const at = links.findIndex((link) => rowOf(link) === rowOf(document.activeElement));
      const next = links[event.key === "j" ? at + 1 : at < 0 ? links.length - 1 : at - 1];
      if (next) next.focus();
    }
  });
}

function rowOf(element) {
  return element && element.closest("tr, .timeline > li");
}

// What is typed into a live search shows at once, and stands in the address.
function searches() {
  for (const field of document.querySelectorAll("[data-search]")) {
    let timer = 0;
    field.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        const address = new URL(document.body.dataset.livePath || location.href, location.href);
        address.searchParams.set(field.name, field.value);
        document.body.dataset.livePath = address.pathname + address.search;
        history.replaceState(null, "", document.body.dataset.livePath);
        live.refresh();
      }, 200);
    });
  }
}

function focusWhatMatters() {
  const target = document.querySelector("p.error[tabindex]") || document.getElementById("destination") || document.getElementById("flash");
  if (target && !location.hash) target.focus({ preventScroll: !target.matches(".error, #destination") });
}

live.start();
copyButtons();
rowButtons();
selectAll();
keys();
searches();
focusWhatMatters();
