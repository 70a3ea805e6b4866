#include "exec/layers/on_all_rows.hpp"

#include <utility>

#include "core/order/call.hpp"
#include "exec/layers/divided_rows.hpp"
#include "exec/layers/expert_group.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

LayerSite site_of_all_rows(LayerSite site) {
  site.divides_rows = false;
  return site;
}

class OnAllRows final : public TrainableLayer {
 public:
  OnAllRows(const Layer& layer, const LayerSite& site, bool ends_whole)
      : extent_(site.extent),
        in_(site.width),
        out_(width_after(layer, site.width, site.path)),
        ends_whole_(ends_whole),
        name_(as_call_name(site.path)),
        ops_(*site.ops),
        rows_(site),
        inner_(make_layer(layer, site_of_all_rows(site))) {}

  Saved new_saved() const override { return inner_->new_saved(); }

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    DividedRows::AllRows all = co_await rows_.gather(name_ + kIn, x.floats(), extent_.rows(), in_);
    x.reset();
    Buffer y = co_await inner_->forward(std::move(all.held), saved);
    if (!ends_whole_) y = own_rows_of(y, out_);
    co_return y;
  }

  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) override {
    if (!ends_whole_) {
      DividedRows::AllRows all =
          co_await rows_.gather(name_ + kOut, dy.floats(), extent_.rows(), out_);
      dy = std::move(all.held);
    }
    Buffer dx = co_await inner_->backward_input(std::move(dy), saved, wanted);
    if (wanted) dx = own_rows_of(dx, in_);
    co_return dx;
  }

  Task<void> backward_weight(Saved& saved) override { return inner_->backward_weight(saved); }
  void add_own_rows(Saved& saved, const Range& rows) override { inner_->add_own_rows(saved, rows); }
  void collect(std::vector<Parameter*>& parameters) override { inner_->collect(parameters); }
  void update_statistics() override { inner_->update_statistics(); }
  void set_evaluating(bool evaluating) override { inner_->set_evaluating(evaluating); }
  void set_loss_share(double share) override { inner_->set_loss_share(share); }

 private:
  Buffer own_rows_of(const Buffer& all, int width) const {
    Buffer own = ops_.take(words_of(rows_.own(extent_.rows()).count, width));
    rows_.keep_own(all.floats(), extent_.rows(), width, own.floats());
    return own;
  }

  const Extent extent_;
  const int in_, out_;
  const bool ends_whole_;
  const std::string name_;  // as one of calls
  TensorOps& ops_;
  const DividedRows rows_;
  std::unique_ptr<TrainableLayer> inner_;
};

}  // namespace

bool needs_all_rows(const Layer& layer, const LayerSite& site) {
  if (layer.kind == LayerKind::Linear) return site.split == Split::Whole;
  // Whole experts that differ along tp take the rows of each rank there.
  if (layer.kind == LayerKind::MixtureOfExperts)
    return site.experts == nullptr || !site.experts->is_folded();
  return !takes_some_rows(layer.kind);
}

std::unique_ptr<TrainableLayer> make_on_all_rows(const Layer& layer, const LayerSite& site,
                                                 bool ends_whole) {
  return std::make_unique<OnAllRows>(layer, site, ends_whole);
}

}  // namespace pipewright::exec
