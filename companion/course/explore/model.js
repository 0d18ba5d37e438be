// Around the pass: weights from the file, text to tokens (chapter 00), logits to one token (06).
function read(data) { // a tree of weights, under PyTorch's names
  const bytes = Uint8Array.from(atob(data.weights), c => c.charCodeAt(0));
  let a = 1, b = 0; // Adler-32
  for (const byte of bytes) b = (b + (a = (a + byte) % 65521)) % 65521;
  if (b * 65536 + a !== data.adler32) throw new Error("its weights have changed");
  const numbers = Float32Array.from(new Float16Array(bytes.buffer));
  const model = { config: data.config };
  let start = 0;
  for (const [name, size] of Object.entries(data.sizes)) {
    const path = name.split("."), last = path.pop();
    const part = path.reduce((tree, key) => tree[key] ??= {}, model);
    part[last] = numbers.subarray(start, start += size);
  }
  model.blocks = Object.values(model.blocks);
  model.unembedding ??= model.embedding;
  return model;
}

function tokenizer({ characters, merges }) { // a token's bytes, and how they merge
  const utf8 = new TextEncoder(), decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const letters = [...characters ?? ""], ranks = new Map();
  const index = new Map(letters.map((letter, i) => [letter, i]));
  const bytes = letters.length ? letters.map(letter => utf8.encode(letter))
    : Array.from({ length: 256 }, (_, i) => [i]);
  for (const [left, right] of merges) {
    ranks.set(`${left} ${right}`, bytes.length);
    bytes.push([...bytes[left], ...bytes[right]]);
  }
  const rank = (left, right) => ranks.get(`${left} ${right}`);
  function encode_piece(piece) { // rank by rank: a merge makes only pairs of higher ranks
    const ids = [...utf8.encode(piece)], places = new Map(); // of a rank, where its pairs begin
    const next = ids.map((_, i) => i + 1), previous = ids.map((_, i) => i - 1);
    const note = i => {
      const token = rank(ids[i], ids[next[i]]);
      if (places.has(token)) places.get(token).push(i);
      else if (token) places.set(token, [i]);
    };
    ids.forEach((_, i) => note(i));
    while (places.size) {
      const token = Math.min(...places.keys()), found = places.get(token);
      places.delete(token);
      for (const i of found.sort((i, j) => i - j)) { // from left to right
        const j = next[i];
        if (rank(ids[i], ids[j]) !== token) continue; // an earlier merge has taken one
        ids[i] = token;
        ids[j] = -1;
        next[i] = next[j];
        previous[next[j]] = i;
        note(previous[i]);
        note(i);
      }
    }
    return ids.filter(id => id >= 0);
  }
  return {
    decode: ids => decoder.decode(Uint8Array.from(ids.flatMap(i => [...bytes[i]]))),
    encode: text => characters ? [...text].map(c => index.get(c)) // undefined: not known
      : (text.match(/ ?[A-Za-z']+| ?[^A-Za-z' \n]+|[ \n]+/g) ?? []).flatMap(encode_piece),
  };
}

function surprise(logits, token) { // −ln p, in nats
  const highest = largest(logits), total = sum(logits.map(x => Math.exp(x - highest)));
  return Math.log(total) + highest - logits[token];
}
const ranked = logits => [...logits.keys()].sort((i, j) => logits[j] - logits[i] || 0);
const only = (logits, kept) => logits.map((x, i) => kept.has(i) ? x : -Infinity);
const temperature = (logits, t) => logits.map(x => x / t);
const top_k = (logits, k) => only(logits, new Set(ranked(logits).slice(0, k)));
function top_p(logits, p) { // a token stays if those before it do not reach p yet
  const chances = softmax(logits), kept = new Set();
  let before = 0;
  for (const token of ranked(logits)) {
    if (before < p || p === 1) kept.add(token);
    before += chances[token];
  }
  return only(logits, kept);
}
function dart(chances, u) { // on whose part of the line from 0 to 1 it falls
  let end = 0;
  return ranked(chances).find(token => u < (end += chances[token])) ?? ranked(chances)[0];
}
