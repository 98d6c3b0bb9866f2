/** Pictures of the page: PNG files, and the decoding as an animated GIF. */

import { encode } from "modern-gif";

import type { Session } from "../session.js";
import { svgOfElement } from "./svg.js";

const SCALE = 2;
const STEP_MILLISECONDS = 500;
const LAST_MILLISECONDS = 2000;

export async function pngOfElement(root: HTMLElement, title: string): Promise<Blob> {
  const canvas = await rasterize(svgOfElement(root, title, { cells: false }), SCALE);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large"))), "image/png"));
}

/** The element at each decoding step, as an endless GIF. The page goes through the steps meanwhile. */
export async function gifOfDecoding(session: Session, root: HTMLElement, title: string): Promise<Blob> {
  const { store, shown } = session;
  if (shown === null) throw new Error("there is no translation yet");
  const { step: before } = store.state;
  const frames: { data: HTMLCanvasElement; delay: number }[] = [];
  try {
    for (let step = 0; step < shown.numSteps; ++step) {
      store.update({ step });
      await painted();
      const data = await rasterize(svgOfElement(root, title, { cells: false }), 1);
      frames.push({ data, delay: step === shown.numSteps - 1 ? LAST_MILLISECONDS : STEP_MILLISECONDS });
    }
  } finally {
    store.update({ step: before });
  }
  const width = Math.max(...frames.map(({ data }) => data.width));
  const height = Math.max(...frames.map(({ data }) => data.height));
  const background = getComputedStyle(document.body).backgroundColor;
  const padded = frames.map(({ data, delay }) => ({ data: pad(data, width, height, background), delay }));
  return new Blob([await encode({ width, height, frames: padded, looped: true })], { type: "image/gif" });
}

/** Two frames: the first draws components, the second what their effects draw. */
export async function painted(): Promise<void> {
  for (let frame = 0; frame < 2; ++frame) await new Promise((resolve) => requestAnimationFrame(resolve));
}

async function rasterize(svg: string, scale: number): Promise<HTMLCanvasElement> {
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = Math.ceil(image.width * scale);
    canvas.height = Math.ceil(image.height * scale);
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas;
  } finally {
    URL.revokeObjectURL(url);
  }
}

function pad(frame: HTMLCanvasElement, width: number, height: number, background: string): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  if (context !== null) {
    context.fillStyle = background;
    context.fillRect(0, 0, width, height);
    context.drawImage(frame, 0, 0);
  }
  return canvas;
}
