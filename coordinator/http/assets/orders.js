// What operators order: buttons, and what came of it. The secret beside an order is in the page alone, so no other site gives one.

import { h, say } from "./dom.js";

const SURE_FOR = 6000;
const said = document.getElementById("said");
const secret = document.querySelector('meta[name="ckptd-order"]')?.content ?? "";

/** Whether whoever looks may order something. */
export const acts = document.querySelector("main").dataset.acts === "yes";

function tell(text) {
  said.hidden = !text;
  say(said, text);
}

async function post(path, pairs) {
  const headers = { "x-ckptd-order": secret };
  const answer = await fetch(path, { method: "POST", headers, body: new URLSearchParams(pairs) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(text.trim());
  return text.trim();
}

async function give(button, what, about) {
  button.disabled = true;
  tell("…");
  try {
    tell(await post("/order", { what, about }));
  } catch (error) {
    tell(String(error.message));
  }
  button.disabled = false;
}

/** A button that gives an order; `sure`: what it asks before that. */
export function order(label, what, about, sure) {
  const button = h("button", { type: "button", class: "order", "data-what": what }, label);
  let until = 0;
  button.addEventListener("click", () => {
    if (sure && Date.now() > until) {
      until = Date.now() + SURE_FOR;
      say(button, sure);
      setTimeout(() => say(button, label), SURE_FOR);
    } else {
      until = 0;
      say(button, label);
      give(button, what, about);
    }
  });
  return button;
}

const logout = document.getElementById("logout");
if (logout) {
  logout.hidden = false;
  logout.addEventListener("click", async () => {
    try {
      await post("/logout", {});
      document.location.replace("/");
    } catch (error) {
      tell(String(error.message));
    }
  });
}
