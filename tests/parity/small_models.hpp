// Transformers that train in milliseconds.
#pragma once

#include "core/base/json.hpp"
#include "core/model/model.hpp"

namespace pipewright::tests {

/// Blocks of attention behind an embedding: every operator with a matrix product.
inline Model small_transformer() {
  return read_model(JsonCursor(Json{{"schema", "pipewright.model/1"},
                                    {"transformer",
                                     {{"hidden", 12},
                                      {"layers", 6},
                                      {"heads", 2},
                                      {"ffn", 20},
                                      {"vocabulary", 256},
                                      {"sequence", 5}}}},
                               "small transformer"));
}

/// The same in Llama's style; two heads of queries share a head of keys.
inline Model small_llama() {
  Json json = to_json(small_transformer());
  json["transformer"]["heads"] = 6;
  json["transformer"]["kv_heads"] = 3;
  json["transformer"]["style"] = "llama";
  return read_model(JsonCursor(json, "small llama"));
}

/// The same with experts that drop rows, one more for all rows, and a router with losses of its
/// own.
inline Model small_mixtral() {
  Json json = to_json(small_llama());
  json["transformer"].update({{"experts", 4},
                              {"top_k", 2},
                              {"shared_ffn", 7},
                              {"capacity_factor", 1},
                              {"balance_loss", 0.05},
                              {"z_loss", 0.01}});
  return read_model(JsonCursor(json, "small mixtral"));
}

/// The same with sigmoid scores, groups of experts and a bias that balances them.
inline Model small_deepseek() {
  Json json = to_json(small_mixtral());
  json["transformer"].update({{"experts", 8},
                              {"scoring", "sigmoid"},
                              {"groups", 4},
                              {"top_groups", 2},
                              {"scaling", 2.5},
                              {"balance_rate", 0.01}});
  return read_model(JsonCursor(json, "small deepseek"));
}

/// The small transformer whose head uses the embedding's table.
inline Model tied_transformer() {
  Json json = to_json(small_transformer());
  json["transformer"]["tied_head"] = true;
  return read_model(JsonCursor(json, "tied transformer"));
}

}  // namespace pipewright::tests
