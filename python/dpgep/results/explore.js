// The page: what was chosen, and pictures and tables of the answers (`answers.js`). Texts are never read as HTML.
"use strict";

(() => {
  const MOST_PAIRS = 500, MOST_COMPONENTS = 20, SHOWN = 5, MOST_NAMES = 25;
  const data = dpgep.read(JSON.parse(document.getElementById("data").textContent));
  const names = data.names, everything = names.map((_, j) => j), level = `${+(100 * data.level).toFixed(4)} %`;
  const at = (id) => document.getElementById(id);
  let chosen = everything;

  // ---- Elements

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function drawn(name, attributes = {}, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  }

  const short = (text, most = 18) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  /** Four digits, as many as a reader wants; the title of a cell has them all. */
  function digits(value) {
    if (!Number.isFinite(value)) return value > 0 ? "∞" : value < 0 ? "−∞" : "?";
    const size = Math.abs(value);
    const text = size !== 0 && (size < 1e-3 || size >= 1e7) ? value.toExponential(2) : String(+value.toPrecision(4));
    return text.replaceAll("-", "−");
  }

  /** How values of a column are written: dates where it holds days since 1970. */
  const written = (j) => (value) => (data.dates.includes(j) && Math.abs(value) < 700000
    ? new Date(Math.floor(value) * 864e5).toISOString().slice(0, 10) : digits(value));

  const between = (low, high, form = digits) => `${form(low)} to ${form(high)}`;

  /** A cell with a value and its interval below. */
  function estimate({ value, low, high }, form = digits) {
    const cell = element("td", { class: "number", title: `${value} (${low} to ${high})`, "data-value": value });
    cell.append(element("span", {}, form(value)), element("span", { class: "soft" }, between(low, high, form)));
    return cell;
  }

  const number = (value) => element("td", { class: "number", title: value, "data-value": value }, digits(value));

  /** A table of rows [heading, ...cells]; cells are texts or elements. It may be scrolled with the keyboard. */
  function table(caption, heading, rows) {
    const head = element("thead", {}, element("tr", {}, ...heading.map((text, i) => element("th", { scope: "col", ...(rows.some((row) => row[i] instanceof Node) && { class: "number" }) }, text))));
    const body = element("tbody", {}, ...rows.map(([first, ...cells]) => element("tr", {},
      element("th", { scope: "row" }, first), ...cells.map((cell) => (cell instanceof Node ? cell : element("td", {}, cell))))));
    const scrolled = element("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": caption });
    scrolled.append(element("table", { "aria-label": caption }, head, body));
    return element("div", {}, element("p", { class: "soft" }, caption), scrolled);
  }

  const show = (id, ...children) => at(id).replaceChildren(...children);

  function options(id, labels, ...first) {
    show(id, ...first, ...labels.map((label, i) => element("option", { value: i }, label)));
  }

  // ---- Questions

  function describe() {
    const of = data.described;
    const rows = chosen.map((j) => [names[j],
      estimate({ value: of.mean[j], low: of.mean_low[j], high: of.mean_high[j] }, written(j)),
      estimate({ value: of.deviation[j], low: of.deviation_low[j], high: of.deviation_high[j] },
        data.dates.includes(j) ? (value) => `${digits(value)} days` : digits)]);
    const note = data.missing ? "; missing values count as their column’s location, which makes deviations smaller" : "";
    const known = chosen.some((j) => of.quartiles[j]), heading = ["Column", "Mean", "Deviation", ...(known ? ["25 %", "50 %", "75 %"] : [])];
    if (known) chosen.forEach((j, row) => rows[row].push(...[0, 1, 2].map((i) => (of.quartiles[j]
      ? estimate({ value: of.quartiles[j][i], low: of.quartile_low[j][i], high: of.quartile_high[j][i] }, written(j)) : ""))));
    show("described-table", table(`Means and deviations, with intervals at ${level}${note}`, heading, rows));
    if (data.unseen) at("described-table").append(element("p", { class: "warn" }, `${data.unseen}.`));
  }

  const correlationOf = (i, j) => ({ value: data.correlation.values[i][j], low: data.correlation.low[i][j], high: data.correlation.high[i][j] });

  /** Cells of one colour in one path, so that a hundred columns are a few elements. */
  function correlate() {
    const d = chosen.length, few = d <= 25, colours = new Map();
    chosen.forEach((i, row) => chosen.forEach((j, column) => {
      const step = Math.round(20 * data.correlation.values[i][j]);
      colours.set(step, `${colours.get(step) || ""}M${column} ${row}h1v1h-1z`);
    }));
    const size = Math.max(d, 1), wide = 400, origin = few ? 130 : 2, unit = (wide - origin - 2) / size;
    const label = `Heat map of the correlations of ${d} columns. Arrow keys move from cell to cell.`;
    const picture = drawn("svg", { viewBox: `0 0 ${wide} ${unit * size + 4}`, role: "application", tabindex: "0", "aria-label": label, "aria-describedby": "heat-text" });
    const cells = drawn("g", { transform: `translate(${origin} 2) scale(${unit})` });
    for (const [step, path] of colours) {
      const colour = `color-mix(in oklab, var(--${step < 0 ? "minus" : "plus"}) ${5 * Math.abs(step)}%, var(--card))`;
      cells.append(drawn("path", { d: path, style: `fill: ${colour}` }));
    }
    if (few) chosen.forEach((j, row) => picture.append(drawn("text", { x: origin - 6, y: 2 + unit * (row + 0.5) + 4, "text-anchor": "end", style: `font-size: ${Math.min(12, 0.9 * unit)}px` }, short(names[j], 17))));
    const cursor = drawn("rect", { class: "cursor", width: unit, height: unit, visibility: "hidden" });
    picture.append(cells, cursor);
    let place = [Math.min(1, d - 1), 0];
    const point = (row, column) => {
      if (!d) return;
      place = [Math.min(Math.max(row, 0), d - 1), Math.min(Math.max(column, 0), d - 1)];
      cursor.setAttribute("x", origin + unit * place[1]);
      cursor.setAttribute("y", 2 + unit * place[0]);
      cursor.setAttribute("visibility", "visible");
      const [i, j] = place.map((at) => chosen[at]), found = correlationOf(i, j);
      at("heat-text").textContent = `${names[i]} and ${names[j]}: ${digits(found.value)}, interval ${between(found.low, found.high)} at ${level}`;
    };
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    picture.addEventListener("keydown", (event) => {
      const move = moves[event.key];
      if (!move) return;
      event.preventDefault();
      point(place[0] + move[0], place[1] + move[1]);
    });
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect(), ratio = picture.viewBox.baseVal.width / box.width;
      point(Math.floor(((event.clientY - box.top) * ratio - 2) / unit), Math.floor(((event.clientX - box.left) * ratio - origin) / unit));
    });
    show("heat", picture);
    at("heat-text").textContent = "Blue: larger together. Orange: one larger where the other is smaller. Point at a cell, or use arrow keys.";
    if (at("pairs").parentElement.open) listPairs();
  }

  function listPairs() {
    const found = chosen.flatMap((i, row) => chosen.slice(0, row).map((j) => [i, j, correlationOf(i, j)]));
    found.sort((a, b) => Math.abs(b[2].value) - Math.abs(a[2].value));
    const rows = found.slice(0, MOST_PAIRS).map(([i, j, each]) => [`${names[j]}, ${names[i]}`, estimate(each)]);
    const rest = found.length > MOST_PAIRS ? `; the ${MOST_PAIRS} largest of ${found.length}` : "";
    show("pairs", table(`Correlations, with intervals at ${level}${rest}`, ["Columns", "Correlation"], rows));
  }

  function decompose() {
    const standardized = at("standardized").checked;
    if (!chosen.length) return ["scree", "biplot", "weights"].forEach((id) => show(id));
    const found = dpgep.components(data, chosen, standardized), k = Math.min(found.values.length, MOST_COMPONENTS);
    const values = found.values.slice(0, k), edges = (found.edge || []).slice(0, k);
    // scree
    const top = Math.max(...values, ...edges, 1e-300), bottom = Math.min(0, ...values), height = 220, width = 360, left = 52;
    const y = (value) => 12 + height * (top - value) / (top - bottom), step = (width - left) / k;
    const scree = drawn("svg", { viewBox: `0 0 ${width} ${height + 48}`, role: "img", "aria-label": `Eigenvalues of ${k} components; the table below has them` });
    for (const value of [0, top / 2, top]) {
      scree.append(drawn("line", { class: "line", x1: left, x2: width, y1: y(value), y2: y(value) }));
      scree.append(drawn("text", { class: "soft", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, digits(+value.toPrecision(2))));
    }
    values.forEach((value, i) => {
      const lost = found.found !== null && i >= found.found;
      scree.append(drawn("rect", { class: `bar${lost ? " lost" : ""}`, x: left + step * (i + 0.15), width: 0.7 * step, y: Math.min(y(value), y(0)), height: Math.max(Math.abs(y(value) - y(0)), 0.5) }));
      if (k <= 10 || i % 5 === 4 || i === 0) scree.append(drawn("text", { class: "soft", x: left + step * (i + 0.5), y: height + 30, "text-anchor": "middle" }, i + 1));
    });
    if (edges.length) scree.append(drawn("path", { class: "edge", d: edges.map((edge, i) => `${i ? "L" : "M"}${left + step * i} ${y(edge)}h${step}`).join("") }));
    scree.append(drawn("text", { class: "soft", x: (left + width) / 2, y: height + 46, "text-anchor": "middle" }, "component"));
    show("scree", scree);
    const noise = found.noiseLevel ? ` Noise level ${digits(found.noiseLevel)}: noise alone may move an eigenvalue by about as much.` : "";
    const line = edges.length ? ` Dashed: what noise alone hardly exceeds; ${found.found} of ${k} directions are not lost in it.` : " The edge of the noise is known of all columns together.";
    at("scree-text").textContent = `What each component explains.${data.noise.second ? line : ""}${noise}`;
    drawBiplot(found);
    const count = Math.min(k, SHOWN), heading = ["Column", ...values.slice(0, count).map((_, i) => `Component ${i + 1}`)];
    const rows = [["Eigenvalue", ...values.slice(0, count).map(number)],
      ["Share of all", ...values.slice(0, count).map((value) => number(value / found.total))],
      ...chosen.map((j, place) => [names[j], ...found.weights.slice(0, count).map((row) => number(row[place]))])];
    const unit = standardized ? "of columns in units of their deviations" : "of columns in their own units";
    show("weights", table(`Eigenvalues, and weights ${unit}`, heading, rows));
  }

  function drawBiplot(found) {
    if (found.values.length < 2) return show("biplot");
    const points = chosen.map((j, place) => [0, 1].map((i) => found.weights[i][place] * Math.sqrt(Math.max(found.values[i], 0))));
    const reach = Math.max(...points.map(([x, y]) => Math.max(Math.abs(x), Math.abs(y))), 1e-300), half = 180;
    const picture = drawn("svg", { viewBox: `0 0 ${2 * half} ${2 * half}`, role: "img", "aria-label": "Biplot of the first two components; the table below has the weights" });
    picture.append(drawn("path", { class: "line", d: `M0 ${half}H${2 * half}M${half} 0V${2 * half}` }));
    const longest = points.map(([x, y], place) => [Math.hypot(x, y), place]).sort((a, b) => b[0] - a[0]), taken = [];
    const end = (place) => points[place].map((value) => value / reach * (half - 50));
    for (const [x, y] of longest.map(([, place]) => end(place))) {
      picture.append(drawn("line", { class: "arrow", x1: half, y1: half, x2: half + x, y2: half - y }));
    }
    for (const [, place] of longest.slice(0, MOST_NAMES)) {
      const [x, y] = end(place), name = short(names[chosen[place]], 14);
      const width = 8 * name.length, start = Math.min(Math.max(x < 0 ? half + x - 4 - width : half + x + 4, 0), 2 * half - width);
      const box = [start, half - y + (y < 0 ? 12 : -3), width];
      // names that would cover others are left to the table
      if (taken.some(([a, b, w]) => Math.abs(b - box[1]) < 13 && a < box[0] + box[2] && box[0] < a + w)) continue;
      taken.push(box);
      picture.append(drawn("text", { x: box[0], y: box[1] }, name));
    }
    show("biplot", picture);
  }

  function regress() {
    const y = +at("target").value, x = chosen.filter((j) => j !== y), ridge = Math.max(+at("ridge").value || 0, 0);
    show("coefficients");
    show("regression-remarks");
    if (!x.length) return show("regression-remarks", element("p", {}, "Choose columns to regress on."));
    let found;
    try {
      found = dpgep.regression(data, y, x, ridge);
    } catch (error) {
      return show("regression-remarks", element("p", { class: "warn" }, error.message));
    }
    const listed = (columns) => columns.map((j) => names[j]).join(", ");
    const remarks = [[`R squared ${digits(found.rSquared)}, residual deviation ${digits(Math.sqrt(found.residualVariance))}, noise share ${digits(found.noiseShare)}.`, ""]];
    found.leftOut.forEach((group) => remarks.push([`Left out: the sum of ${listed(group)}, which is 1 for everybody.`, ""]));
    if (data.missing) remarks.push(["Missing values count as their column’s location: coefficients differ, and errors do not count that.", "warn"]);
    if (found.drowned) remarks.push(["Noise drowns the covariance of the columns: coefficients are drawn towards zero. Choose fewer columns.", "warn"]);
    if (found.collinear.length) remarks.push([`Nearly collinear: ${listed(found.collinear)}. Errors of their coefficients are large. Leave one out, or give a ridge.`, "warn"]);
    show("regression-remarks", ...remarks.map(([text, kind]) => element("p", { class: kind }, text)));
    const rows = ["intercept", ...x.map((j) => names[j])].map((name, i) => [name,
      estimate({ value: found.values[i], low: found.low[i], high: found.high[i] }), number(found.noiseErrors[i]), number(found.peopleErrors[i])]);
    show("coefficients", table(`${names[y]} on ${x.length} columns, with intervals at ${level}`, ["Column", "Coefficient", "Error by noise", "Error by sample"], rows));
  }

  const counted = (value) => (Number.isFinite(value) ? String(Math.round(value)).replace("-", "−") : digits(value));

  function compare() {
    const category = data.categories[+at("groups").value], columns = chosen.filter((j) => !category.places.includes(j));
    const counts = dpgep.crosstab(data, category).map(([cell]) => cell);
    const means = dpgep.meansBy(data, category, columns);
    const rows = [["people", ...counts.map((cell) => estimate(cell, counted)), "", ""],
      ...columns.map((j, i) => [names[j], ...means[i].cells.map((cell) => estimate(cell, written(j))), number(means[i].f), number(means[i].p)])];
    const note = data.missing ? ". Missing values count as their column’s location, which draws means of groups together" : "";
    show("means-table", table(`Means by ${category.name}, with intervals at ${level}${note}`, ["Column", ...category.labels, "F", "p"], rows));
  }

  function count() {
    const a = data.categories[+at("first").value], b = at("second").value === "" ? null : data.categories[+at("second").value];
    if (a === b) return show("counts", element("p", {}, "Choose two different columns."));
    const cells = dpgep.crosstab(data, a, b);
    const rows = a.labels.map((label, k) => [label, ...cells[k].map((cell) => estimate(cell, counted))]);
    const title = b ? `People by ${a.name} and ${b.name}` : `People by ${a.name}`;
    show("counts", table(`${title}, with intervals at ${level}`, [a.name, ...(b ? b.labels : ["people"])], rows));
    if (!b) return;
    const { chiSquare, degrees, pValue, v } = dpgep.dependence(data, a, b);
    at("counts").append(element("p", { id: "dependence" }, `Independence: chi-square ${digits(chiSquare)}, ${degrees} degrees of freedom, p = ${digits(pValue)}; Cramér’s V ${digits(v)}.`));
  }

  function promise() {
    const { statement, rows, risk, assumptions, ledger, signature, sha256, report } = data.guarantee;
    const list = (texts) => element("ul", {}, ...texts.map((text) => element("li", {}, text)));
    const saved = element("button", { type: "button" }, "Save the privacy report");
    saved.addEventListener("click", () => {
      const link = element("a", { href: URL.createObjectURL(new Blob([report], { type: "application/json" })), download: "report.json" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
    show("guarantee-text",
      element("p", { class: "card" }, statement),
      table("The guarantee", ["Term", "Value"], rows),
      element("h3", {}, "Risk of an attack"), list(risk),
      element("h3", {}, "What is taken for granted"), list(assumptions),
      element("h3", {}, "Ledger"), table("Everything that was released, and what it cost", ledger[0], ledger.slice(1)),
      element("h3", {}, "How to verify it"),
      element("p", {}, "Save the report, install dpgep, and run ", element("code", {}, "dpgep report verify report.json"), "."),
      element("p", {}, signature), element("p", {}, "SHA-256 ", element("code", {}, sha256)), element("p", {}, saved));
  }

  // ---- The page

  const panels = {
    described: describe, correlation: correlate, components: decompose, regression: regress,
    means: compare, crosstab: count, guarantee: promise,
  };

  function isAnswered(id) {
    if (id === "regression") return names.length > 1 && data.questions.includes("regression");
    return (id !== "means" && id !== "crosstab") || data.categories.length > 0;
  }

  const waiting = new Set(), near = new Set();

  /** Answer in a panel that waits: one that is looked at, or else the next one. */
  function answerNext() {
    const id = [...waiting].find((each) => near.has(each)) || [...waiting][0];
    if (id && waiting.delete(id)) panels[id]();
    if (!waiting.size) document.documentElement.dataset.answered = chosen.length;
  }

  /** Panels that are looked at are answered first, the others when the browser has nothing else to do. */
  function answerSoon() {
    if (!waiting.size) return;
    const soon = [...waiting].some((each) => near.has(each)) ? setTimeout : window.requestIdleCallback || setTimeout;
    soon(() => { answerNext(); answerSoon(); });
  }

  /** Answer all about these columns, panel by panel, so that the page can be read meanwhile. */
  function choose(columns) {
    const isIdle = !waiting.size;
    chosen = columns;
    at("chosen").textContent = `${columns.length} of ${names.length} chosen`;
    Object.keys(panels).filter(isAnswered).forEach((id) => waiting.add(id));
    if (isIdle) answerSoon();
  }

  function start() {
    const epsilon = data.guarantee.rows.filter(([name]) => ["Epsilon", "Delta"].includes(name)).map(([name, value]) => `${name.toLowerCase()} ${value}`);
    at("summary").textContent = `${names.length} columns of ${Math.round(data.n)} people, released with differential privacy: ${epsilon.join(", ")}.`;
    show("warnings", ...data.warnings.map((text) => element("p", { class: "warn" }, text)));
    for (const id of Object.keys(panels)) {
      if (!isAnswered(id)) at(id).remove();
      else at("contents").append(element("li", {}, element("a", { href: `#${id}` }, at(id).querySelector("h2").textContent)));
    }
    const boxes = names.map((_, j) => element("input", { type: "checkbox", value: j, checked: "" }));
    show("columns", ...names.map((name, j) => element("label", {}, boxes[j], element("span", {}, name))));
    const chosenBoxes = () => choose(everything.filter((j) => boxes[j].checked));
    at("columns").addEventListener("change", chosenBoxes);
    for (const [id, on] of [["all", true], ["none", false]]) {
      at(id).addEventListener("click", () => { boxes.forEach((box) => { box.checked = on; }); chosenBoxes(); });
    }
    at("standardized").addEventListener("change", decompose);
    at("pairs").parentElement.addEventListener("toggle", (event) => { if (event.target.open) listPairs(); });
    if (isAnswered("regression")) {
      options("target", names);
      for (const id of ["target", "ridge"]) at(id).addEventListener("change", regress);
    }
    if (data.categories.length) {
      const labels = data.categories.map((category) => category.name);
      options("groups", labels);
      options("first", labels);
      options("second", labels, element("option", { value: "" }, "(none)"));
      at("second").value = labels.length > 1 ? "1" : "";
      at("groups").addEventListener("change", compare);
      for (const id of ["first", "second"]) at(id).addEventListener("change", count);
    }
    const looking = new IntersectionObserver((seen) => seen.forEach(({ target, isIntersecting }) => near[isIntersecting ? "add" : "delete"](target.id)), { rootMargin: "50%" });
    Object.keys(panels).filter(isAnswered).forEach((id) => looking.observe(at(id)));
    window.addEventListener("beforeprint", () => { while (waiting.size) answerNext(); });
    choose(everything);
  }

  start();
})();
