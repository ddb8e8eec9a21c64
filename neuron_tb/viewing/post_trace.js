// Hands the trace of this server to a window of the Perfetto UI. The UI answers PONG to a PING
// once it is ready to take a trace; messages sent before are lost, so PING is repeated.
"use strict";

const UI = "https://ui.perfetto.dev";
const PING_MILLISECONDS = 100;
const PATIENCE_MILLISECONDS = 60000;

const name = document.getElementById("name").textContent;
const button = document.getElementById("open");
const state = document.getElementById("state");
let buffer = null;

async function read() {
  try {
    const answer = await fetch("trace");
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    buffer = await answer.arrayBuffer();
  } catch (error) {
    state.textContent = `The trace could not be read (${error.message}). Is neuron-tb still running?`;
    return;
  }
  const size = buffer.byteLength / 1e6;
  state.textContent = `${size < 0.1 ? (size * 1000).toFixed(1) + " kB" : size.toFixed(1) + " MB"} read.`;
  button.disabled = false;
  button.focus();
}

function hand_over() {
  const ui = window.open(UI);
  if (!ui) {
    state.textContent = "The browser blocked the window. Allow pop-ups for this page and click again.";
    return;
  }
  state.textContent = "Waiting for ui.perfetto.dev …";
  const begin = Date.now();
  const timer = setInterval(() => {
    if (Date.now() - begin > PATIENCE_MILLISECONDS || ui.closed) {
      finish(ui.closed ? "The window was closed." : "ui.perfetto.dev did not answer. Is there a connection?");
    } else {
      ui.postMessage("PING", UI);
    }
  }, PING_MILLISECONDS);

  function listen(event) {
    if (event.source !== ui || event.origin !== UI || event.data !== "PONG") return;
    finish("Handed over. This page and neuron-tb may be closed.");
    ui.postMessage({ perfetto: { buffer, title: name, fileName: name } }, UI);
  }

  function finish(sentence) {
    clearInterval(timer);
    window.removeEventListener("message", listen);
    state.textContent = sentence;
  }

  window.addEventListener("message", listen);
}

button.addEventListener("click", hand_over);
read();
