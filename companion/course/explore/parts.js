"use strict";
// What the pass is made of. A vector is a Float32Array; a matrix has its rows one after the other.
function dot(a, b) {
  let total = 0;
  for (let i = 0; i < a.length; i++) total += a[i] * b[i];
  return total;
}
function linear({ weight, bias }, x) { // W x + b; four rows at a time, which is twice as fast
  const n = x.length, y = new Float32Array(weight.length / n);
  for (let next = 0; next < y.length; next += 4) {
    const row = Math.min(next, y.length - 4); // the last four may be partly done
    let a = 0, b = 0, c = 0, d = 0, at = row * n;
    for (let i = 0; i < n; i++, at++) {
      a += x[i] * weight[at]; b += x[i] * weight[at + n];
      c += x[i] * weight[at + 2 * n]; d += x[i] * weight[at + 3 * n];
    }
    y[row] = a; y[row + 1] = b; y[row + 2] = c; y[row + 3] = d;
  }
  return bias ? add(y, bias) : y;
}
const add = (a, b) => a.map((x, i) => x + b[i]);
const sum = x => x.reduce((total, a) => total + a, 0);
const largest = x => x.reduce((a, b) => Math.max(a, b), -Infinity);
function softmax(scores) { // chapter 01
  const highest = largest(scores), powers = scores.map(score => Math.exp(score - highest));
  const total = sum(powers);
  return powers.map(power => power / total);
}
const NORMS = { // chapter 04
  rms({ gain }, x, eps) {
    const root = Math.sqrt(dot(x, x) / x.length + eps);
    return x.map((a, i) => a / root * (gain ? gain[i] : 1));
  },
  layer({ gain, bias }, x, eps) {
    const mean = sum(x) / x.length, normed = NORMS.rms({ gain }, x.map(a => a - mean), eps);
    return bias ? add(normed, bias) : normed;
  },
};
function erf(x) { // Abramowitz and Stegun 7.1.26, right to 1.5e-7
  const t = 1 / (1 + 0.3275911 * Math.abs(x)), e = Math.exp(-x * x);
  const inner = -0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429));
  return Math.sign(x) * (1 - e * t * (0.254829592 + t * inner));
}
const ACTIVATIONS = { // chapter 04
  gelu: x => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  gelu_tanh: x => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  relu: x => Math.max(x, 0),
  squared_relu: x => Math.max(x, 0) ** 2,
  silu: x => x / (1 + Math.exp(-x)),
};
// Chapter 03: position t as an angle, and as a vector to add.
const angle = (t, i, d, base = 10000) => t * base ** (-2 * i / d);
const sinusoidal = (t, d) => new Float32Array(d)
  .map((_, i) => (i % 2 ? Math.cos : Math.sin)(angle(t, i >> 1, d)));
function rotate(x, t, base) { // feature i is paired with feature i + d/2
  const turned = x.slice(), half = x.length / 2;
  for (let i = 0; i < half; i++) {
    const a = angle(t, i, x.length, base), cosine = Math.cos(a), sine = Math.sin(a);
    turned[i] = x[i] * cosine - x[i + half] * sine;
    turned[i + half] = x[i + half] * cosine + x[i] * sine;
  }
  return turned;
}
