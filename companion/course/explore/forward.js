// The forward pass, one token at a time. A token looks back at those before it: `past` has their
// records, and what these hold of keys and values is the cache of chapter 07.

function attend(query, keys, t, slope) { // chapter 01: from a query at t to its weights
  const products = keys.map(key => dot(query, key));
  const scores = products.map((p, s) => p / Math.sqrt(query.length) - slope * Math.abs(t - s));
  const masked = scores.map((score, s) => s <= t ? score : -Infinity);
  return { products, scores, masked, weights: softmax(masked) };
}

function attention(layer, x, t, seen, config, is_silent) { // chapter 02: all heads
  const cut = (v, d = config.d_model / config.n_heads) =>
    Array.from({ length: v.length / d }, (_, h) => v.slice(h * d, h * d + d));
  let [queries, keys, values] = [layer.to_queries, layer.to_keys, layer.to_values]
    .map(matrix => cut(linear(matrix, x)));
  const both = change => { queries = queries.map(change); keys = keys.map(change); };
  if (config.qk_norm) both(head => NORMS.rms({}, head, 2 ** -23));
  if (config.positions === "rotary") both(head => rotate(head, t, config.rotary_base));
  const all = [...seen, { keys, values }], heads = new Float32Array(config.d_model);
  const weights = queries.map((query, h) => {
    const shared = Math.floor(h * keys.length / config.n_heads); // the head of keys and values
    const { weights } = attend(query, all.map(token => token.keys[shared]), t, config.slopes[h]);
    for (let s = 0; s <= t && !is_silent(h); s++)
      for (let i = 0; i < query.length; i++)
        heads[h * query.length + i] += weights[s] * all[s].values[shared][i];
    return weights;
  });
  return { queries, keys, values, weights, heads, attended: linear(layer.to_output, heads) };
}

function feed_forward({ to_hidden, to_gate, to_output }, x, activation) { // chapter 04
  const plain = linear(to_hidden, x);
  const hidden = to_gate ? linear(to_gate, x).map((gate, i) => activation(gate) * plain[i])
    : plain.map(activation);
  return { hidden, fed: linear(to_output, hidden) };
}

function block(layer, x, t, seen, config, is_silent) { // chapter 04: two branches, each added
  const normed = NORMS[config.norm](layer.attention_norm, x, config.eps);
  const looked = attention(layer.attention, normed, t, seen, config, is_silent);
  const between = add(x, looked.attended);
  const ready = NORMS[config.norm](layer.feed_forward_norm, between, config.eps);
  const { hidden, fed } = feed_forward(layer.feed_forward, ready, ACTIVATIONS[config.activation]);
  return { x, normed, ...looked, between, hidden, after: add(between, fed) };
}

const unembed = (model, x) =>
  linear(model.unembedding, NORMS[model.config.norm](model.norm, x, model.config.eps));

function forward(model, token, past, silenced = new Set()) { // chapter 04: the whole model
  const config = model.config, t = past.length, d = config.d_model;
  const embedding = model.embedding.weight.slice(token * d, token * d + d)
    .map(x => x * (config.scale_embeddings ? Math.sqrt(d) : 1));
  let position = new Float32Array(d);
  if (config.positions === "learned")
    position = model.positions.table.weight.slice(t * d, t * d + d);
  if (config.positions === "sinusoidal") position = sinusoidal(t, d);
  let x = add(embedding, position);
  const blocks = model.blocks.map((layer, l) => {
    const seen = past.map(record => record.blocks[l]);
    const made = block(layer, x, t, seen, config, h => silenced.has(`${l}.${h}`));
    x = made.after;
    return made;
  });
  return { token, embedding, position, blocks, logits: unembed(model, x) };
}
