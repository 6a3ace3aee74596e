// Answers from released moments, as dpgep computes them in Python; nothing here knows of a page.
//
// `data` is what `dpgep.results.page` has written. Matrices are arrays of rows. Columns are numbers, from 0. The moments
// are those of mapped columns z = (x - location)/scale. Names are those of the Python functions that have the formulas.
"use strict";

const dpgep = (() => {
  const FEW = 0.005, SHOWN = 4, RESOLVED = 100; // dpgep.models.redundant
  const DEPENDENT = 0.6; // dpgep.models.clipping
  const CONVERGED = 1e-6, MOST_STEPS = 100, SHORTEST = 0.5, COLLINEAR = 30, DROWNED = 0.5; // dpgep.results.least_squares

  // ---- Linear algebra

  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const dot = (u, v) => { let total = 0; for (let i = 0; i < u.length; i++) total += u[i] * v[i]; return total; };
  const range = (n) => Array.from({ length: n }, (_, i) => i);
  const table = (rows, columns, entry) => range(rows).map((i) => range(columns).map((j) => entry(i, j)));
  const identity = (n) => table(n, n, (i, j) => (i === j ? 1 : 0));
  const transposed = (a) => table(a.length ? a[0].length : 0, a.length, (i, j) => a[j][i]);
  const applied = (a, v) => a.map((row) => dot(row, v));
  const product = (a, b) => { const columns = transposed(b); return a.map((row) => columns.map((v) => dot(row, v))); };
  const combined = (a, s, b) => a.map((row, i) => row.map((value, j) => value + s * b[i][j]));
  const trace = (a) => sum(a.map((row, i) => row[i]));
  const forms = (contrasts, a) => contrasts.map((row) => dot(row, applied(a, row)));
  const outer = (u, v) => u.map((x) => v.map((y) => x * y));
  const size = (a) => Math.sqrt(sum(a.map((row) => dot(row, row))));
  const clipped = (value, low, high) => Math.min(Math.max(value, low), high);

  /** Eigenvalues of a symmetric matrix, descending, and unit eigenvectors as rows: rotations of pairs (Jacobi). */
  function eigen(matrix) {
    const n = matrix.length, a = matrix.map((row) => Float64Array.from(row));
    const vectors = identity(n).map((row) => Float64Array.from(row));
    const norm = size(a);
    for (let sweep = 0; sweep < 60; sweep++) {
      let off = 0;
      for (let p = 0; p < n; p++) for (let q = 0; q < p; q++) off += a[p][q] ** 2;
      if (Math.sqrt(off) <= 1e-17 * norm) break;
      for (let p = 0; p < n; p++) for (let q = p + 1; q < n; q++) rotate(a, vectors, p, q, 1e-20 * norm);
    }
    const order = range(n).sort((i, j) => a[j][j] - a[i][i]);
    return { values: order.map((i) => a[i][i]), vectors: order.map((i) => Array.from(vectors[i])) };
  }

  /** Turn two coordinates so that the entry between them is zero. */
  function rotate(a, vectors, p, q, tiny) {
    if (Math.abs(a[p][q]) <= tiny) return;
    const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
    const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
    const c = 1 / Math.sqrt(t * t + 1), s = t * c, n = a.length, [ap, aq] = [a[p], a[q]], step = t * ap[q];
    for (let i = 0; i < n; i++) {
      if (i === p || i === q) continue;
      const x = ap[i], y = aq[i];
      a[i][p] = ap[i] = c * x - s * y;
      a[i][q] = aq[i] = s * x + c * y;
    }
    ap[p] -= step;
    aq[q] += step;
    ap[q] = aq[p] = 0;
    const [vp, vq] = [vectors[p], vectors[q]];
    for (let i = 0; i < n; i++) {
      const x = vp[i], y = vq[i];
      vp[i] = c * x - s * y;
      vq[i] = s * x + c * y;
    }
  }

  /** L with L L^T = matrix, or null where that is not positive definite. */
  function cholesky(matrix) {
    const n = matrix.length, lower = table(n, n, () => 0);
    for (let i = 0; i < n; i++) {
      for (let j = 0; j <= i; j++) {
        let left = matrix[i][j];
        for (let k = 0; k < j; k++) left -= lower[i][k] * lower[j][k];
        if (i > j) lower[i][j] = left / lower[j][j];
        else if (left > 0) lower[i][i] = Math.sqrt(left);
        else return null;
      }
    }
    return lower;
  }

  /** matrix^-1 rhs for the columns of rhs: Cholesky's factor, or elimination with pivots where there is none. */
  function solved(matrix, rhs) {
    const n = matrix.length, x = rhs.map((row) => [...row]), lower = cholesky(matrix);
    const subtract = (i, k, factor) => { for (let j = 0; j < x[i].length; j++) x[i][j] -= factor * x[k][j]; };
    const divide = (i, by) => { for (let j = 0; j < x[i].length; j++) x[i][j] /= by; };
    if (lower) {
      for (let i = 0; i < n; i++) { for (let k = 0; k < i; k++) subtract(i, k, lower[i][k]); divide(i, lower[i][i]); }
      for (let i = n - 1; i >= 0; i--) {
        for (let k = i + 1; k < n; k++) subtract(i, k, lower[k][i]);
        divide(i, lower[i][i]);
      }
      return x;
    }
    const a = matrix.map((row) => [...row]);
    for (let k = 0; k < n; k++) {
      const pivot = range(n).slice(k).reduce((best, i) => (Math.abs(a[i][k]) > Math.abs(a[best][k]) ? i : best), k);
      [a[k], a[pivot]] = [a[pivot], a[k]];
      [x[k], x[pivot]] = [x[pivot], x[k]];
      for (let i = k + 1; i < n; i++) {
        const factor = a[i][k] / a[k][k];
        for (let j = k; j < n; j++) a[i][j] -= factor * a[k][j];
        subtract(i, k, factor);
      }
    }
    for (let i = n - 1; i >= 0; i--) {
      for (let k = i + 1; k < n; k++) subtract(i, k, a[i][k]);
      divide(i, a[i][i]);
    }
    return x;
  }

  const inverted = (matrix) => solved(matrix, identity(matrix.length));

  // ---- What was released

  const whole = (rows) => table(rows.length, rows.length, (i, j) => (i < j ? rows[j][i] : rows[i][j]));

  /** The data with whole matrices in place of triangles, and the covariance of mapped columns. */
  function read(data) {
    const second = whole(data.second), m = data.mean;
    const covariance = second.map((row, i) => row.map((value, j) => value - m[i] * m[j]));
    const correlation = Object.fromEntries(Object.entries(data.correlation).map(([name, rows]) => [name, whole(rows)]));
    let clipping = null;
    if (data.clipping) {
      const before = whole(data.clipping.covariance);
      const tails = before.map((row, i) => Math.max(row[i], 0) * data.clipping.lost[i] / (1 - data.clipping.lost[i]));
      clipping = { ...data.clipping, covariance: before, tails };
    }
    return { ...data, second, covariance, correlation, clipping };
  }

  const block = (matrix, rows, columns) => rows.map((i) => columns.map((j) => matrix[i][j]));
  const some = (values, columns) => columns.map((j) => values[j]);

  // ---- Clipping: what covariances may have been before a bound that was bought (dpgep.models.clipping)

  const restored = (clipping, i, j) => clipping.covariance[i][j] / Math.sqrt((1 - clipping.lost[i]) * (1 - clipping.lost[j]));
  const independent = (clipping, i, j) => clipping.covariance[i][j] + (i === j ? clipping.tails[i] : 0);

  /** How far below and above an entry of the mapped covariance may lie. */
  function reachOfEntry(data, i, j) {
    const { clipping, covariance } = data;
    if (!clipping) return [0, 0];
    const value = covariance[i][j], alone = independent(clipping, i, j), other = restored(clipping, i, j);
    const reach = i === j ? 0 : DEPENDENT * Math.sqrt(clipping.tails[i] * clipping.tails[j]);
    const low = Math.min(alone - reach, other, clipping.covariance[i][j]), high = Math.max(alone + reach, other);
    const ratio = (k) => {
      const variance = Math.max(covariance[k][k], 0);
      return clipping.most[k] > variance && variance > 0 ? clipping.most[k] / variance : 1;
    };
    const grown = value * Math.sqrt(ratio(i) * ratio(j)), doubt = clipping.doubt;
    return [Math.max(doubt * Math.max(value - low, 0), value - grown), Math.max(doubt * Math.max(high - value, 0), grown - value)];
  }

  /** Covariances of columns before clipping: tails like the bulk, independent, and dependent for each sign. */
  function hypotheses(clipping, columns, along) {
    const of = (entry) => columns.map((i) => columns.map((j) => entry(clipping, i, j)));
    const tails = some(clipping.tails, columns);
    const dependent = along.map((direction) => {
      const row = tails.map((tail, a) => Math.sqrt(tail) * (direction[a] < 0 ? -1 : 1));
      return columns.map((i, a) => columns.map((j, b) =>
        clipping.covariance[i][j] + DEPENDENT * row[a] * row[b] + (a === b ? (1 - DEPENDENT) * tails[a] : 0)));
    });
    return [of(restored), of(independent), ...dependent];
  }

  // ---- Components

  /** Components of columns, in their units or standardized: eigenvalues, and weights as rows of unit norm. */
  function components(data, columns, standardized) {
    const { covariance, noise, scale, standard, in_pairs } = data;
    let served = columns, matrix, noiseLevel;
    if (standardized) {
      served = columns.filter((j) => standard.scale[j] > 0);
      matrix = served.map((i) => served.map((j) => (i === j
        ? standard.variances[i] / standard.scale[i] ** 2
        : covariance[i][j] / standard.scale[i] / standard.scale[j])));
      const inverse = served.map((j) => 1 / standard.scale[j] ** 2);
      noiseLevel = noise.second * Math.sqrt(2 * sum(inverse) * Math.max(...inverse));
    } else {
      matrix = columns.map((i) => columns.map((j) => covariance[i][j] * scale[i] * scale[j]));
      const squares = columns.map((j) => scale[j] ** 2);
      noiseLevel = noise.second * Math.sqrt(2 * sum(squares) * Math.max(...squares));
    }
    const { values, vectors } = eigen(matrix);
    const weights = vectors.map((vector) => {
      const sizes = vector.map(Math.abs), sign = vector[sizes.indexOf(Math.max(...sizes))] < 0 ? -1 : 1;
      const all = new Array(columns.length).fill(0);
      served.forEach((j, place) => { all[columns.indexOf(j)] = sign * vector[place]; });
      return all;
    });
    const total = trace(matrix), edge = columns.length === data.names.length ? data.pca[standardized ? "standardized" : "plain"] : null;
    return { values, weights, total, noiseLevel: in_pairs ? null : noiseLevel, edge: edge && edge.edge, found: edge && edge.edge ? edge.found : null };
  }

  // ---- Regression (dpgep.results.least_squares)

  /** E[(m e^T + e m^T) A (m e^T + e m^T)] for e of independent entries of this variance. */
  function ofMean(a, m, variance) {
    const am = applied(a, m), inner = dot(m, am), t = trace(a);
    return a.map((row, i) => row.map((_, j) => variance * ((i === j ? inner : 0) + t * m[i] * m[j] + m[i] * am[j] + am[i] * m[j])));
  }

  /** E[N A N] for the noise N = Z - m e^T - e m^T of a covariance. */
  function noiseSquared(a, v, m, w) {
    const t = trace(a), along = ofMean(a, m, w);
    return a.map((row, i) => row.map((value, j) => v * ((i === j ? t : 0) + value) + along[i][j]));
  }

  /** The G > 0 with G^-1 = matrix + v (tr(G) I + G), and its eigenvectors; `near`: those of a matrix that is like it. */
  function resolvent(matrix, v, near = identity(matrix.length)) {
    const { values, vectors: turned } = eigen(product(product(near, matrix), transposed(near)));
    const vectors = product(turned, near);
    for (let t = 0; ;) {
      const h = values.map((value) => value + v * t), root = h.map((x) => Math.sqrt(x * x + 4 * v));
      const g = h.map((x, i) => (x > 0 ? 2 / (Math.abs(x) + root[i]) : (root[i] + Math.abs(x)) / (2 * v)));
      const step = (sum(g) - t) / (1 + v * sum(g.map((x, i) => x / root[i])));
      if (!(step > 1e-12 * t)) return [product(transposed(vectors.map((u, i) => u.map((x) => g[i] * x))), vectors), vectors];
      t += step;
    }
  }

  /** G = (matrix + Xi)^-1 and Xi = E[N G N]; without noise the inverse, of columns that are not dependent. */
  function inverseOfNoisy(matrix, v, m, w) {
    if (v === 0) {
      const scale = matrix.map((row, i) => Math.sqrt(Math.max(row[i], 0)) || 1);
      const inUnits = matrix.map((row, i) => row.map((x, j) => x / scale[i] / scale[j]));
      const { values } = eigen(inUnits);
      if (values[values.length - 1] <= 1e3 * Number.EPSILON * values.length * values[0])
        throw new Error("These columns are linearly dependent, or constant: leave some out, or give a ridge.");
      return [inverted(inUnits).map((row, i) => row.map((x, j) => x / scale[i] / scale[j])), table(matrix.length, matrix.length, () => 0)];
    }
    let [g, vectors] = resolvent(matrix, v), held = table(matrix.length, matrix.length, () => 0);
    const inner = (a, b) => sum(a.map((row, i) => dot(row, b[i])));
    let change = held, length = 1;
    for (let round = 0; round < MOST_STEPS; round++) {
      const before = change;
      change = combined(ofMean(g, m, w), -1, held);
      if (size(product(product(g, change), g)) <= CONVERGED * size(g)) break;
      const left = inner(before, change) / Math.max(inner(before, before), 1e-300);
      length = clipped(length / Math.max(1 - left, 1e-300), SHORTEST, 1);
      held = combined(held, length, change);
      [g, vectors] = resolvent(combined(matrix, 1, held), v, vectors);
    }
    return [g, noiseSquared(g, v, m, w)];
  }

  /** Orthonormal rows across sums of indicators of one column without variance, and the groups left out. */
  function acrossIndicators(data, x) {
    const { second, mean, noise, scale } = data, p = x.length, leftOut = [];
    const rounding = 4 * p * Number.EPSILON * Math.max(...x.map((j) => Math.abs(second[j][j])));
    let rows = identity(p);
    for (const group of data.indicators) {
      const places = group.map((j) => x.indexOf(j));
      if (places.includes(-1)) continue;
      const length = Math.sqrt(sum(group.map((j) => scale[j] ** 2)));
      const u = new Array(p).fill(0);
      group.forEach((j, place) => { u[places[place]] = scale[j] / length; });
      const along = dot(u, some(mean, x)), variance = dot(u, applied(block(second, x, x), u)) - along ** 2;
      const deviation = Math.hypot(noise.second, 2 * noise.sums * Math.abs(along)) + rounding;
      const limit = Math.min(Math.max(FEW / length ** 2, SHOWN * deviation), RESOLVED * deviation);
      if (variance > limit) continue;
      leftOut.push(group);
      // a reflection that takes the first indicator's axis to u; without that axis
      const first = places[0], h = u.map((value, i) => value + (i === first ? 1 : 0)), square = dot(h, h);
      rows = rows.filter((row) => row[first] !== 1).map((row) => { const s = 2 * dot(row, h) / square; return row.map((value, i) => value - s * h[i]); });
    }
    return { rows, leftOut };
  }

  /** Least squares of the column y on the columns x, with an intercept, in their units. */
  function regression(data, y, x, ridge = 0) {
    const { noise, n, scale, location, covariance, second, mean } = data, p = x.length;
    const v = noise.second ** 2 / 2, w = noise.sums ** 2;
    const { rows: basis, leftOut } = ridge ? { rows: identity(p), leftOut: [] } : acrossIndicators(data, x);
    const q = basis.length, columns = transposed(basis);
    if (!q) throw new Error("These columns are constant: they are the one category of a column.");
    const noisy = (i, j) => covariance[i][j] + (i === j ? w : 0);
    const inside = x.map((i) => x.map((j) => noisy(i, j)));
    const cxy = applied(basis, x.map((j) => covariance[j][y])), cyy = noisy(y, y);
    const m = applied(basis, some(mean, x)), my = mean[y];
    const [g, xi] = inverseOfNoisy(combined(product(product(basis, inside), columns), ridge, identity(q)), v, m, w);
    const b = applied(g, cxy);
    const own = v * trace(g) + w * (dot(m, applied(g, m)) + my ** 2 * trace(g));
    const meanSquare = Math.max(cyy - dot(b, cxy) + own - ridge * dot(b, b), 0), alpha = my - dot(m, b);
    const freedom = Math.max(n - q - 1, 1), residualVariance = meanSquare * n / freedom;
    const ofPeople = combined(g, 1, product(product(g, combined(xi, -ridge, identity(q))), g));

    const bordered = (inverse) => {
      const im = applied(inverse, m);
      return [[1 + dot(m, im), ...im.map((value) => -value)], ...inverse.map((row, i) => [-im[i], ...row])];
    };
    const covarianceOf = (squared, kept) => {
      const a = table(q + 1, q + 1, (i, j) => {
        if (i === 0 && j === 0) return w * squared + kept * (alpha * noise.counts) ** 2;
        if (i === 0 || j === 0) return w * kept * alpha * b[Math.max(i, j) - 1];
        return v * kept * b[i - 1] * b[j - 1] + (i === j ? v * squared + w * kept * alpha ** 2 : 0);
      });
      const inverse = bordered(g);
      return product(product(inverse, a), inverse);
    };
    const inner = (matrix) => matrix.slice(1).map((row) => row.slice(1));
    const squared = 1 + dot(b, b) - residualVariance / n * trace(ofPeople);
    const inflated = inner(covarianceOf(squared, 1)), total = trace(inflated);
    const spread = trace(product(product(g, noiseSquared(inflated, v, m, w)), g));
    const kept = total > 0 ? total / (total + spread) : 1;
    const ofNoise = covarianceOf(Math.max(squared * kept, 1), kept);

    // to the units of the columns
    const ratios = x.map((j) => scale[y] / scale[j]);
    const ofColumns = [[scale[y], ...x.map((j, i) => -location[j] * ratios[i])], ...ratios.map((ratio, i) => [0, ...range(p).map((j) => (i === j ? ratio : 0))])];
    const toUnits = ofColumns.map((row) => [row[0], ...applied(basis, row.slice(1))]);
    const theta = applied(toUnits, [alpha, ...b]);
    theta[0] += location[y];
    const penalized = applied(g, b.map((value) => ridge * value)), biasOfMean = dot(m, penalized);
    const spreads = forms(toUnits, bordered(ofPeople));
    const people = toUnits.map((row, i) => (meanSquare * spreads[i] + (dot(row.slice(1), penalized) - row[0] * biasOfMean) ** 2) / freedom);
    const noiseErrors = forms(toUnits, ofNoise).map((value) => Math.sqrt(Math.max(value, 0)));
    const peopleErrors = people.map((value) => Math.sqrt(Math.max(value, 0)));
    const reach = reachOfClipping(data, { g, b, m }, y, x, basis, toUnits);
    const halves = theta.map((_, i) => data.student[p] * Math.hypot(noiseErrors[i], peopleErrors[i]));
    const inflation = forms(columns, g);
    return {
      values: theta,
      low: theta.map((value, i) => value - halves[i] - longerBy(data, halves[i], reach[i][0])),
      high: theta.map((value, i) => value + halves[i] + longerBy(data, halves[i], reach[i][1])),
      noiseErrors, peopleErrors, leftOut,
      residualVariance: residualVariance * scale[y] ** 2,
      rSquared: cyy > 0 ? clipped(1 - meanSquare / cyy, 0, 1) : 0,
      noiseShare: 1 - kept,
      drowned: 1 - kept > DROWNED,
      collinear: x.filter((j, i) => inflation[i] * (second[j][j] - mean[j] ** 2) > COLLINEAR),
    };
  }

  /** How far coefficients may lie below and above, had the covariance been another before clipping. */
  function reachOfClipping(data, { g, b, m }, y, x, basis, toUnits) {
    const { clipping, covariance } = data;
    if (!clipping) return toUnits.map(() => [0, 0]);
    const columns = [...x, y], here = block(covariance, columns, columns), leading = eigen(here).vectors[0];
    const opposite = leading.map((value, i) => (i === x.length ? -value : value));
    const before = block(clipping.covariance, columns, columns), more = combined(combined(here, 1, here), -1, before);
    const others = [...hypotheses(clipping, columns, [leading, opposite]), before, more];
    const precision = inverted(g), column = applied(precision, b), moved = [toUnits.map(() => 0)];
    for (const other of others) {
      const change = combined(other, -1, here), within = change.slice(0, -1).map((row) => row.slice(0, -1));
      const matrix = combined(precision, 1, product(product(basis, within), transposed(basis)));
      const right = applied(basis, change.slice(0, -1).map((row) => row[x.length])).map((value, i) => [value + column[i]]);
      const step = solved(matrix, right).map((row, i) => row[0] - b[i]);
      moved.push(applied(toUnits, [-dot(m, step), ...step]));
    }
    return toUnits.map((_, i) => {
      const values = moved.map((each) => each[i]);
      return [clipping.doubt * Math.max(-Math.min(...values), 0), clipping.doubt * Math.max(...values, 0)];
    });
  }

  /** By how much an interval is longer on a side for a bias within reach: halved until no digit changes. */
  function longerBy({ level, normal }, half, reach) {
    if (!(half > 0 && reach > 0)) return Math.max(reach, 0);
    const ratio = reach * normal / half;
    const beyond = (x) => (x < 0 ? 2 - chiSquareTail(1, x * x) : chiSquareTail(1, x * x)) / 2;
    let [low, high] = [0, ratio + normal];
    for (let middle = (low + high) / 2; low < middle && middle < high; middle = (low + high) / 2) {
      if (beyond(middle - ratio) + beyond(middle + ratio) > 1 - level) low = middle; else high = middle;
    }
    return half * (high / normal - 1);
  }

  // ---- Groups of people (dpgep.results.contingency, dpgep.results.group_means)

  /** A column as a function of itself: location + scale z. */
  const numberOf = (data, j) => ({ places: [j], forms: [[data.scale[j]]], offsets: [data.location[j]], restored: [1], least: 0 });

  function shares(data, variables) {
    const found = applied(variables.forms, some(data.mean, variables.places)).map((value, k) => value + variables.offsets[k]);
    return { shares: found, divisors: found.map((value) => Math.max(value, variables.least)), squares: variables.forms.map((form) => dot(form, form)) };
  }

  /** Covariances of two lists of variables, and how far below and above they may lie. */
  function joint(data, first, second) {
    const pairs = first.places.map((i) => second.places.map((j) => reachOfEntry(data, i, j)));
    const reach = (side) => first.forms.map((f) => second.forms.map((h) => Math.sqrt(
      sum(f.map((s, a) => sum(h.map((t, b) => (s * t * pairs[a][b][side]) ** 2)))))));
    const values = first.forms.map((f) => second.forms.map((h) => sum(f.map((s, a) => sum(h.map((t, b) =>
      s * t * data.covariance[first.places[a]][second.places[b]] * first.restored[a] * second.restored[b]))))));
    return [values, reach(0), reach(1)];
  }

  /** How far below and above shares of people may lie for what clipping did. */
  function reachOfShares(data, category) {
    const moved = data.clipping ? applied(category.forms, some(data.mean, category.places)).map((value) => -value) : category.offsets.map(() => 0);
    return [moved.map((value) => Math.max(-value, 0)), moved.map((value) => Math.max(value, 0))];
  }

  // ---- Tests

  /** log Gamma(a), a > 0: Lanczos' series of nine terms. */
  function logGamma(a) {
    if (a < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * a)) - logGamma(1 - a);
    const terms = [676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
      -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7];
    const series = sum(terms.map((term, i) => term / (a + i))), t = a + 6.5;
    return Math.log(Math.sqrt(2 * Math.PI) * (0.99999999999980993 + series)) + (a - 0.5) * Math.log(t) - t;
  }

  /** b0 + a1/(b1 + a2/(b2 + ...)) for parts(i) = [a_i, b_i] (Lentz). */
  function fraction(first, parts) {
    const kept = (value) => (Math.abs(value) < 1e-300 ? 1e-300 : value);
    let f = kept(first), c = f, d = 0;
    for (let i = 1; i < 1e5; i++) {
      const [a, b] = parts(i);
      d = 1 / kept(b + a * d);
      c = kept(b + a / c);
      f *= c * d;
      if (Math.abs(c * d - 1) < 1e-16) break;
    }
    return f;
  }

  /** The probability that chi-square of so many degrees of freedom exceeds x. */
  function chiSquareTail(degrees, x) {
    const a = degrees / 2, z = x / 2;
    if (!(z > 0)) return 1;
    const scale = Math.exp(a * Math.log(z) - z - logGamma(a));
    if (z > a + 1) return scale / fraction(z + 1 - a, (i) => [i * (a - i), z + 2 * i + 1 - a]);
    let term = 1 / a, total = term;
    for (let k = 1; term > 1e-17 * total; k++) total += term *= z / (a + k);
    return 1 - scale * total;
  }

  /** The probability that F of these degrees of freedom exceeds x; logBeta: log B(second/2, first/2). */
  function fTail(first, second, logBeta, x) {
    if (!Number.isFinite(x)) return x > 0 ? 0 : NaN;
    if (!(x > 0)) return 1;
    const ratio = first * x / second, [a, b] = [second / 2, first / 2];
    const scale = Math.exp(-a * Math.log1p(ratio) + b * (Math.log(ratio) - Math.log1p(ratio)) - logBeta);
    const part = (p, q, y) => scale / p / fraction(1, (i) => {
      const k = i >> 1;
      return [(i % 2 ? -(p + k) * (p + q + k) / ((p + 2 * k) * (p + 2 * k + 1)) : k * (q - k) / ((p + 2 * k - 1) * (p + 2 * k))) * y, 1];
    });
    const y = 1 / (1 + ratio);
    return y < (a + 1) / (a + b + 2) ? part(a, b, y) : 1 - part(b, a, ratio / (1 + ratio));
  }

  /** What clipping may have done, granted to the hypothesis that a value is 0. */
  const granted = (value, below, above) => Math.max(value - below, 0) + Math.min(value + above, 0);

  /** Chi-square of two categories, corrected for the noise, its degrees of freedom, p-value, and Cramer's V. */
  function dependence(data, a, b) {
    const { noise, n } = data, [rows, columns] = [shares(data, a), shares(data, b)], [values, below, above] = joint(data, a, b);
    const root = values.map((row, k) => row.map((_, l) => Math.sqrt(rows.divisors[k] * columns.divisors[l])));
    const scaled = values.map((row, k) => row.map((value, l) => granted(value, below[k][l], above[k][l]) / root[k][l]));
    const along = product(product(transposed(a.axes), scaled), b.axes);
    const noises = a.along.map((own) => b.along.map((theirs) => noise.second ** 2 / 2 * own * theirs));
    const chiSquare = sum(along.map((row, i) => sum(row.map((value, j) => n * value ** 2 / (1 + n * noises[i][j])))));
    const degrees = a.along.length * b.along.length;
    const phi = sum(values.map((row, k) => sum(row.map((value, l) => (value / root[k][l]) ** 2)))) - sum(noises.map(sum));
    const v = Math.sqrt(Math.max(phi, 0) / Math.max(Math.min(a.along.length, b.along.length), 1));
    return { chiSquare, degrees, pValue: degrees ? chiSquareTail(degrees, chiSquare) : 1, v: Math.min(v, 1) };
  }

  /** Counts of people by one category, or by two, with intervals; of one, the second has the one label "people". */
  function crosstab(data, a, b = null) {
    const { noise, n, normal } = data, first = shares(data, a), ofFirst = reachOfShares(data, a);
    const cell = (share, variance, [near, far]) => {
      let people = clipped(share, 0, 1) * clipped(1 - share, 0, 1) / n;
      if (noise.second) people = Math.max(people, 1 / n ** 2);
      const half = normal * Math.sqrt(variance + people);
      return {
        value: n * share,
        low: n * clipped(share - Math.hypot(half, near[0]) - far[0], 0, 1),
        high: n * clipped(share + Math.hypot(half, near[1]) + far[1], 0, 1),
      };
    };
    if (!b) {
      return first.shares.map((share, k) => [cell(
        share, noise.sums ** 2 * first.squares[k] + (noise.counts * a.offsets[k]) ** 2, [[0, 0], [ofFirst[0][k], ofFirst[1][k]]])]);
    }
    const second = shares(data, b), ofSecond = reachOfShares(data, b), [values, below, above] = joint(data, a, b);
    return values.map((row, k) => row.map((value, l) => {
      const [s, t] = [first.squares[k], second.squares[l]], [o, u] = [a.offsets[k], b.offsets[l]];
      const variance = noise.second ** 2 / 2 * s * t + noise.sums ** 2 * (s * u ** 2 + o ** 2 * t) + noise.counts ** 2 * (o * u) ** 2;
      const far = (side) => ofFirst[side][k] * second.divisors[l] + first.divisors[k] * ofSecond[side][l];
      return cell(first.shares[k] * second.shares[l] + value, variance, [[below[k][l], above[k][l]], [far(0), far(1)]]);
    }));
  }

  /** For each column, its means in the groups of a category, with intervals; F that all are the same, and its p-value. */
  function meansBy(data, category, columns) {
    const { noise, n } = data, groups = shares(data, category), ofShares = reachOfShares(data, category);
    return columns.map((j) => {
      const number = numberOf(data, j), square = data.scale[j] ** 2, centre = data.location[j] + data.scale[j] * data.mean[j];
      const [values, below, above] = joint(data, number, category).map((rows) => rows[0]);
      const variance = Math.max(data.second[j][j] - data.mean[j] ** 2, noise.second) * square;
      const ownNoise = square * (noise.second ** 2 / 2 + noise.sums ** 2 * data.mean[j] ** 2);
      const between = clipped(sum(values.map((value, k) => value ** 2 / groups.divisors[k])) - ownNoise * sum(category.along), 0, variance);
      const within = (variance - between) * n / category.freedom;
      const moved = data.scale[j] * (data.means.bought[j] - data.mean[j]);
      const [less, more] = [data.means.below, data.means.above].map((tails) => data.scale[j] * tails[j]);
      const away = values.map((value, k) => granted(value, below[k], above[k]) / Math.sqrt(groups.divisors[k]));
      const ratios = transposed(category.axes).map((axis, i) => {
        const expected = within + n * ownNoise * category.along[i];
        return expected > 0 ? n * dot(axis, away) ** 2 / expected : Infinity;
      });
      const f = sum(ratios) / ratios.length, p = fTail(ratios.length, category.freedom, category.log_beta, f);
      const cells = values.map((value, k) => {
        const share = groups.divisors[k], effect = value / share, mean = centre + effect;
        const moves = data.location[j] - mean, offset = category.offsets[k], form = groups.squares[k];
        const ofNoise = noise.second ** 2 / 2 * square * form + noise.counts ** 2 * moves ** 2 * offset ** 2
          + noise.sums ** 2 * (moves ** 2 * form + square * offset ** 2);
        const half = category.student * Math.sqrt(ofNoise / share ** 2 + within / (n * share));
        const reach = Math.abs(effect) * Math.max(ofShares[0][k], ofShares[1][k]);
        const [before, after] = [below, above].map((side) => Math.hypot(half, (side[k] + reach) / share));
        const unknown = noise.sums > 0 && groups.shares[k] < SHOWN * category.least ? Infinity : 0;
        return {
          value: mean,
          low: mean - before - longerBy(data, before, Math.hypot(Math.max(-moved, 0), less)) - unknown,
          high: mean + after + longerBy(data, after, Math.hypot(Math.max(moved, 0), more)) + unknown,
        };
      });
      return { cells, f, p };
    });
  }

  return { read, eigen, components, regression, crosstab, dependence, meansBy, chiSquareTail, fTail };
})();
