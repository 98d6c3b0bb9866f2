/** A part of the page as an SVG picture: text as text, matrices as cells with their values. */

import { cellsOfCanvas } from "../components/heatmap.js";

const MAX_CELLS = 40_000;
const FONT = `system-ui, "Noto Sans", "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif`;
const SHAPE_STYLES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "stroke-linecap", "stroke-linejoin", "opacity",
  "font-size", "font-weight", "font-style", "text-anchor", "dominant-baseline", "paint-order", "visibility",
];

interface Frame {
  left: number;
  top: number;
}

/** The SVG file of an element as it is shown, with the page's colours. `cells`: matrices as cells with their values, not as images. */
export function svgOfElement(root: HTMLElement, title: string, { cells = true } = {}): string {
  const box = root.getBoundingClientRect();
  const parts: string[] = [];
  const margin = 16;
  const frame = { left: box.left - margin, top: box.top - margin };
  const background = getComputedStyle(document.body).backgroundColor;
  let numClips = 0;
  const walk = (node: Node): void => {
    if (node instanceof Text) parts.push(...textLines(node, frame));
    else if (node instanceof HTMLCanvasElement) parts.push(cells ? canvasCells(node, frame) : canvasImage(node, frame));
    else if (node instanceof SVGSVGElement) parts.push(inlineSvg(node, frame));
    else if (node instanceof HTMLElement) {
      const style = getComputedStyle(node);
      const { width, height } = node.getBoundingClientRect();
      const isFolded = node.parentElement instanceof HTMLDetailsElement && !node.parentElement.open && node.tagName !== "SUMMARY";
      if (isFolded || style.display === "none" || style.visibility === "hidden" || style.clipPath !== "none" || width * height === 0) return;
      parts.push(boxOf(node, style, frame));
      const isClipped = /auto|scroll|hidden/.test(style.overflowX + style.overflowY) && node.scrollWidth * node.scrollHeight > node.clientWidth * node.clientHeight;
      if (isClipped) {
        const { x, y, width: clipWidth, height: clipHeight } = shifted(node.getBoundingClientRect(), frame);
        const id = `clip-${++numClips}`;
        parts.push(`<clipPath id="${id}"><rect x="${x}" y="${y}" width="${clipWidth}" height="${clipHeight}"/></clipPath><g clip-path="url(#${id})">`);
      }
      if (node instanceof HTMLSelectElement) parts.push(controlText(node, node.selectedOptions[0]?.text ?? "", frame));
      else if (node instanceof HTMLTextAreaElement || node instanceof HTMLInputElement) parts.push(inputOf(node, frame));
      else for (const child of node.childNodes) walk(child);
      if (isClipped) parts.push("</g>");
    }
  };
  walk(root);
  const width = round(box.width + 2 * margin);
  const height = round(box.height + 2 * margin);
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family='${FONT}' lang="${document.documentElement.lang}">` +
    `<title>${escape(title)}</title><rect width="${width}" height="${height}" fill="${background}"/>${parts.join("")}</svg>\n`
  );
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

function escape(text: string): string {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ud800-\udfff\ufffe\uffff]/gu, "\ufffd");
}

function shifted(box: DOMRect, frame: Frame): { x: number; y: number; width: number; height: number } {
  return { x: round(box.left - frame.left), y: round(box.top - frame.top), width: round(box.width), height: round(box.height) };
}

const TRANSPARENT = /^(transparent|rgba\(0, 0, 0, 0\))$/;

/** Background and borders. */
function boxOf(element: HTMLElement, style: CSSStyleDeclaration, frame: Frame): string {
  const { x, y, width, height } = shifted(element.getBoundingClientRect(), frame);
  const radius = parseFloat(style.borderTopLeftRadius) || 0;
  const parts: string[] = [];
  if (!TRANSPARENT.test(style.backgroundColor)) {
    parts.push(`<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="${radius}" fill="${style.backgroundColor}"/>`);
  }
  const sides = [
    ["Top", x, y, x + width, y], ["Bottom", x, y + height, x + width, y + height],
    ["Left", x, y, x, y + height], ["Right", x + width, y, x + width, y + height],
  ] as const;
  for (const [side, x1, y1, x2, y2] of sides) {
    const thickness = parseFloat(style[`border${side}Width`]);
    const colour = style[`border${side}Color`];
    if (!(thickness > 0) || style[`border${side}Style`] === "none" || TRANSPARENT.test(colour)) continue;
    const dashes = style[`border${side}Style`] === "dashed" ? ` stroke-dasharray="3 2"` : "";
    parts.push(`<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" stroke="${colour}" stroke-width="${thickness}"${dashes}/>`);
  }
  return parts.join("");
}

/** The lines of a text node, where the browser put them. */
function textLines(node: Text, frame: Frame): string[] {
  const content = node.data;
  const parent = node.parentElement;
  if (content.trim() === "" || parent === null) return [];
  const style = getComputedStyle(parent);
  if (style.visibility === "hidden") return [];
  const range = document.createRange();
  const lines: { text: string; box: DOMRect }[] = [];
  range.selectNodeContents(node);
  const boxes = range.getClientRects();
  if (boxes.length === 1 && boxes[0]) {
    lines.push({ text: content, box: boxes[0] });
  } else {
    let offset = 0;
    for (const character of content) {
      range.setStart(node, offset);
      range.setEnd(node, (offset += character.length));
      const box = range.getClientRects()[0];
      if (box === undefined || box.width === 0) continue;
      const last = lines[lines.length - 1];
      if (last && Math.abs(last.box.top - box.top) < box.height / 2) last.text += character;
      else lines.push({ text: character, box });
    }
  }
  const size = parseFloat(style.fontSize);
  return lines.flatMap(({ text, box }) => {
    if (text.trim() === "") return [];
    const x = round(box.left - frame.left);
    const y = round(box.top - frame.top + box.height / 2 + size * 0.35);
    const slant = style.fontStyle === "normal" ? "" : ` font-style="${style.fontStyle}"`;
    return [`<text x="${x}" y="${y}" font-size="${size}" font-weight="${style.fontWeight}"${slant} fill="${style.color}" xml:space="preserve">${escape(text)}</text>`];
  });
}

function controlText(element: HTMLElement, text: string, frame: Frame): string {
  const style = getComputedStyle(element);
  const box = shifted(element.getBoundingClientRect(), frame);
  const size = parseFloat(style.fontSize);
  const x = round(box.x + parseFloat(style.paddingLeft));
  return `<text x="${x}" y="${round(box.y + box.height / 2 + size * 0.35)}" font-size="${size}" fill="${style.color}">${escape(text)}</text>`;
}

function inputOf(element: HTMLInputElement | HTMLTextAreaElement, frame: Frame): string {
  const { x, y, width, height } = shifted(element.getBoundingClientRect(), frame);
  const style = getComputedStyle(element);
  const middle = round(y + height / 2);
  if (element.type === "range" && element instanceof HTMLInputElement) {
    const [least, most] = [Number(element.min || 0), Number(element.max || 100)];
    const at = round(x + 8 + (width - 16) * ((Number(element.value) - least) / (most - least || 1)));
    return `<line x1="${x}" y1="${middle}" x2="${x + width}" y2="${middle}" stroke="${style.color}"/><circle cx="${at}" cy="${middle}" r="6" fill="${style.color}"/>`;
  }
  if (element.type === "checkbox" || element.type === "radio") {
    const mark = element instanceof HTMLInputElement && element.checked ? style.color : "none";
    return `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="2" fill="${mark}" stroke="${style.color}"/>`;
  }
  return controlText(element, element.value, frame);
}

/** A matrix: one rectangle a cell in the colour that is drawn, with its value. Large ones are an image. */
function canvasCells(canvas: HTMLCanvasElement, frame: Frame): string {
  const { x, y, width, height } = shifted(canvas.getBoundingClientRect(), frame);
  if (width === 0 || canvas.width === 0) return "";
  const cells = cellsOfCanvas.get(canvas);
  const context = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  if (cells === undefined || context === null || cells.numRows * cells.numColumns > MAX_CELLS) return canvasImage(canvas, frame);
  const { title, values, numRows, numColumns } = cells;
  context.drawImage(canvas, 0, 0);
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
  const [cellWidth, cellHeight] = [width / numColumns, height / numRows];
  const parts = [`<g shape-rendering="crispEdges"><title>${escape(title)}</title>`];
  for (let row = 0; row < numRows; ++row) {
    for (let column = 0; column < numColumns; ++column) {
      const [pixelX, pixelY] = [Math.floor(((column + 0.3) * canvas.width) / numColumns), Math.floor(((row + 0.3) * canvas.height) / numRows)];
      const at = 4 * (pixelY * canvas.width + pixelX);
      const colour = `rgb(${pixels[at]},${pixels[at + 1]},${pixels[at + 2]})`;
      const value = values[row * numColumns + column] ?? 0;
      parts.push(
        `<rect x="${round(x + column * cellWidth)}" y="${round(y + row * cellHeight)}" width="${round(cellWidth)}" height="${round(cellHeight)}" fill="${colour}" data-value="${value}"/>`,
      );
    }
  }
  return `${parts.join("")}</g>`;
}

function canvasImage(canvas: HTMLCanvasElement, frame: Frame): string {
  const { x, y, width, height } = shifted(canvas.getBoundingClientRect(), frame);
  if (width === 0 || canvas.width === 0) return "";
  return `<image x="${x}" y="${y}" width="${width}" height="${height}" preserveAspectRatio="none" image-rendering="pixelated" href="${canvas.toDataURL("image/png")}"/>`;
}

/** A drawing of the page, with the computed styles as attributes. */
function inlineSvg(svg: SVGSVGElement, frame: Frame): string {
  const { x, y, width, height } = shifted(svg.getBoundingClientRect(), frame);
  if (width * height === 0) return "";
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const originals = svg.querySelectorAll("*");
  for (const [index, element] of copy.querySelectorAll("*").entries()) {
    const original = originals[index];
    if (original === undefined) continue;
    const style = getComputedStyle(original);
    if (style.display === "none") {
      element.setAttribute("visibility", "hidden");
      continue;
    }
    if (original instanceof SVGGElement || original instanceof SVGDefsElement) {
      if (style.opacity !== "1") element.setAttribute("opacity", style.opacity);
      continue;
    }
    for (const name of SHAPE_STYLES) {
      const value = style.getPropertyValue(name);
      if (value !== "" && value !== "normal" && value !== "auto" && value !== "visible") element.setAttribute(name, value);
    }
    element.removeAttribute("class");
    element.removeAttribute("style");
  }
  for (const [name, value] of Object.entries({ x, y, width, height })) copy.setAttribute(name, String(value));
  copy.removeAttribute("style");
  copy.removeAttribute("class");
  copy.setAttribute("overflow", getComputedStyle(svg).overflow);
  return new XMLSerializer().serializeToString(copy).replaceAll(` xmlns="http://www.w3.org/2000/svg"`, "");
}
