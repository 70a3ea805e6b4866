#include "exec/layers/stage_layers.hpp"

#include <optional>
#include <utility>

#include "core/model/tie.hpp"
#include "exec/layers/on_all_rows.hpp"
#include "exec/layers/recompute.hpp"
#include "exec/layers/tensor_group.hpp"
#include "exec/layers/tied_head.hpp"

namespace pipewright::exec {

Extent extent_of_rank(const Model& model, int samples, const StageDivision& ranks) {
  return {samples, own_sequence(model.sequence, ranks.context)};
}

LayerSite among(RankGroups& groups, LayerSite site) {
  site.tensor = groups.tensor();
  site.experts = groups.experts();
  site.context = groups.context();
  site.divides_rows = groups.divides_rows();
  site.adds_rows_in_turns = groups.adds_rows_in_turns();
  return site;
}

std::vector<std::unique_ptr<TrainableLayer>> make_stage_layers(
    const Model& model, int first, int end, LayerSite site,
    std::span<const LayerRecompute> recompute) {
  const auto table = shared_table_of(model);
  site.shared_table = table.get();
  site.width = width_in_front_of(model, first);
  const std::optional<Tie> tie = tie_of(model);
  const VocabularySplit vocabulary =
      vocabulary_split(model, site.tensor == nullptr ? 1 : site.tensor->size());
  const int last = static_cast<int>(model.layers.size()) - 1;
  std::vector<std::unique_ptr<TrainableLayer>> layers, whole;
  const auto end_whole = [&] {
    if (!whole.empty()) layers.push_back(make_recomputed(std::exchange(whole, {})));
  };
  for (int i = first; i < end; ++i) {
    const auto index = static_cast<std::size_t>(i);
    const Layer& layer = model.layers[index];
    const LayerRecompute what = recompute.empty() ? LayerRecompute::None : recompute[index];
    site.path = layer_path("", i, layer);
    site.recomputes_attention = what == LayerRecompute::Attention;
    site.split = i == 0 && vocabulary.embedding ? Split::Rows : Split::Whole;
    if (i == last && vocabulary.head) divide_end(layer, site);
    if (what != LayerRecompute::Whole || (tie && i == tie->head)) end_whole();
    const bool gathers_for_loss = i == last && site.divides_rows && !vocabulary.head;
    (what == LayerRecompute::Whole ? whole : layers)
        .push_back(gathers_for_loss ? make_on_all_rows(layer, site, true)
                                    : make_layer(layer, site));
    site.width = width_after(layer, site.width, site.path);
  }
  end_whole();
  return layers;
}

}  // namespace pipewright::exec
