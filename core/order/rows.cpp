#include "core/order/rows.hpp"

#include <algorithm>
#include <array>

#include "core/base/trimmed.hpp"
#include "core/order/call_faults.hpp"
#include "core/order/forward_order.hpp"
#include "core/order/order_json.hpp"

namespace pipewright {
namespace {

constexpr int kNobody = -1;

std::string count_text(std::size_t count, const std::string& what, const char* plural = "s") {
  return std::to_string(count) + " " + what + (count == 1 ? "" : plural);
}

/// Who computes what, by row; of each action the first row that has it.
class Rows {
 public:
  Rows(const Order& order, const std::vector<CsvRow>& rows, const std::string& file)
      : order_(order),
        rows_(rows),
        file_(file),
        count_(order.ranks.size()),
        first_row_(4 * static_cast<std::size_t>(order.stages()) *
                       static_cast<std::size_t>(order.micro_batches),
                   kNobody) {
    for (int r = 0; r < order.rank_count(); ++r) {
      for (const Cell& cell : order.ranks[static_cast<std::size_t>(r)]) {
        take(r, cell.action);
        if (cell.partner) take(r, *cell.partner);
      }
    }
  }

  std::optional<std::string> fault() const {
    if (auto found = doubled_row()) return found;
    if (auto found = lost_stage()) return found;
    if (auto found = own_micro_batch()) return found;
    if (auto found = broken_row()) return found;
    return short_row();
  }

 private:
  struct Doubled {
    int row, of;
    std::size_t actions;
  };

  std::size_t slot(ActionKind kind, int stage, int micro_batch) const {
    return (static_cast<std::size_t>(stage) * static_cast<std::size_t>(order_.micro_batches) +
            static_cast<std::size_t>(micro_batch)) *
               4 +
           static_cast<std::size_t>(kind);
  }
  bool has(ActionKind kind, int stage, int micro_batch) const {
    return first_row_[slot(kind, stage, micro_batch)] != kNobody;
  }

  void take(int row, const Action& a) {
    if (!is_compute(a.kind)) return;
    ++count_[static_cast<std::size_t>(row)];
    int& first = first_row_[slot(a.kind, a.stage.value, a.micro_batch.value)];
    if (first == kNobody) {
      first = row;
    } else if (first != row) {
      const auto same = std::find_if(doubled_.begin(), doubled_.end(), [&](const Doubled& each) {
        return each.row == row && each.of == first;
      });
      if (same == doubled_.end())
        doubled_.push_back({row, first, 1});
      else
        ++same->actions;
    }
  }

  std::string name(int row) const {
    return "row " + std::to_string(rows_[static_cast<std::size_t>(row)].number);
  }

  std::string at(int row) const { return file_ + ", " + name(row); }

  /// At least half of a row is in an earlier row too.
  std::optional<std::string> doubled_row() const {
    for (const Doubled& each : doubled_) {
      const std::size_t all = count_[static_cast<std::size_t>(each.row)];
      if (each.actions < 2 || 2 * each.actions < all) continue;
      return at(each.row) + ": " +
             (each.actions == all
                  ? "all of its " + count_text(all, "action")
                  : std::to_string(each.actions) + " of its " + count_text(all, "action")) +
             " stand in " + name(each.of) +
             " already; a row is a rank, and each action stands once: remove one of the two rows, "
             "or give it a stage of its own";
    }
    return std::nullopt;
  }

  bool is_computed(int stage) const {
    const auto begin =
        first_row_.begin() + static_cast<std::ptrdiff_t>(slot(ActionKind::F, stage, 0));
    const auto size = 4 * static_cast<std::ptrdiff_t>(order_.micro_batches);
    return std::any_of(begin, begin + size, [](int row) { return row != kNobody; });
  }

  /// A stage between others that no row computes.
  std::optional<std::string> lost_stage() const {
    int first = 0;
    while (first < order_.stages() && is_computed(first)) ++first;
    if (first == order_.stages()) return std::nullopt;
    int next = first;
    while (next < order_.stages() && !is_computed(next)) ++next;
    const std::string lost = next - first == 1 ? "stage " + std::to_string(first)
                                               : "the stages " + std::to_string(first) + " to " +
                                                     std::to_string(next - 1);
    return file_ + ": no row computes " + lost +
           where_named(next == order_.stages() ? first : next) +
           ": a row is missing, or a stage has a wrong number; each stage from 0 on needs its F "
           "and "
           "its B in one row";
  }

  /// ", but row 3, cell 5 has 7F0": the first cell that names the stage.
  std::string where_named(int stage) const {
    for (int r = 0; r < order_.rank_count(); ++r) {
      const auto& row = order_.ranks[static_cast<std::size_t>(r)];
      for (std::size_t k = 0; k < row.size(); ++k) {
        const Action& a = row[k].action;
        const bool names = has_stage(a.kind) && (a.stage.value == stage ||
                                                 (is_transfer(a.kind) && peer_stage(a) == stage));
        if (names) {
          return ", but " + name(r) + ", cell " + std::to_string(k + 1) + " has " + to_string(a);
        }
      }
    }
    return "";
  }

  /// Micro-batches that one row alone computes, while others would have to.
  std::optional<std::string> own_micro_batch() const {
    if (order_.rank_count() < 2) return std::nullopt;
    std::vector<int> row_of(static_cast<std::size_t>(order_.micro_batches), kNobody);
    constexpr int kSeveral = -2;
    for (int s = 0; s < order_.stages(); ++s) {
      for (int m = 0; m < order_.micro_batches; ++m) {
        for (int kind = 0; kind < 4; ++kind) {
          const int row = first_row_[slot(static_cast<ActionKind>(kind), s, m)];
          int& known = row_of[static_cast<std::size_t>(m)];
          if (row != kNobody) known = known == kNobody || known == row ? row : kSeveral;
        }
      }
    }
    const int own = row_of.back();  // the number of micro-batches comes from the largest one
    if (own < 0) return std::nullopt;
    const auto shared = std::find(row_of.rbegin(), row_of.rend(), kSeveral);
    if (shared == row_of.rend()) return std::nullopt;
    const int last = static_cast<int>(row_of.size()) - 1;
    return at(own) + ": it alone names micro-batch " + std::to_string(last) +
           where_micro_batch(own, last) + "; the other rows end at " +
           std::to_string(row_of.rend() - shared - 1) +
           ": correct its number, or give all stages this micro-batch";
  }

  std::string where_micro_batch(int row, int micro_batch) const {
    const auto& cells = order_.ranks[static_cast<std::size_t>(row)];
    for (std::size_t k = 0; k < cells.size(); ++k) {
      const Action& a = cells[k].action;
      if (has_micro_batch(a.kind) && a.micro_batch.value == micro_batch)
        return " (cell " + std::to_string(k + 1) + ": " + to_string(a) + ")";
    }
    return "";
  }

  /// How many of a stage's computations each row has; owner_of() is the row with most.
  std::vector<std::size_t> shares_of(int stage) const {
    std::vector<std::size_t> shares(order_.ranks.size());
    for (std::size_t k = slot(ActionKind::F, stage, 0); k < slot(ActionKind::F, stage + 1, 0);
         ++k) {
      if (first_row_[k] != kNobody) ++shares[static_cast<std::size_t>(first_row_[k])];
    }
    return shares;
  }
  int owner_of(int stage) const {
    const auto shares = shares_of(stage);
    return static_cast<int>(std::max_element(shares.begin(), shares.end()) - shares.begin());
  }

  /// A row that computes nothing but a part of another row's stage: a line that was broken.
  std::optional<std::string> broken_row() const {
    for (int s = 0; s < order_.stages(); ++s) {
      const auto shares = shares_of(s);
      const int owner = owner_of(s);
      for (int r = 0; r < order_.rank_count(); ++r) {
        const std::size_t mine = shares[static_cast<std::size_t>(r)];
        if (r == owner || mine < 2 || mine != count_[static_cast<std::size_t>(r)]) continue;
        return at(r) + ": all of its " + count_text(mine, "action") + " are of stage " +
               std::to_string(s) + ", which " + name(owner) +
               " computes; a row is a rank: join the two, if one line was broken into two";
      }
    }
    return std::nullopt;
  }

  /// Actions of several micro-batches are missing, in one row or in many.
  std::optional<std::string> short_row() const {
    const bool forward_only = is_forward_only(order_);
    std::vector<int> owners;
    for (int s = 0; s < order_.stages(); ++s) owners.push_back(owner_of(s));
    std::vector<int> missing(order_.ranks.size());  // micro-batches that lack something
    std::vector<std::string> first(order_.ranks.size());
    int all = 0;
    for (int m = 0; m < order_.micro_batches; ++m) {
      std::vector<int> short_here;
      for (int s = 0; s < order_.stages(); ++s) {
        const std::string lacks = lacking(s, m, forward_only);
        const int owner = owners[static_cast<std::size_t>(s)];
        if (lacks.empty() || std::count(short_here.begin(), short_here.end(), owner) > 0) continue;
        short_here.push_back(owner);
        const auto row = static_cast<std::size_t>(owner);
        if (missing[row]++ == 0) first[row] = lacks;
        ++all;
      }
    }
    const auto rows = std::count_if(missing.begin(), missing.end(), [](int n) { return n > 0; });
    if (all < 2 || all < 2 * rows) return std::nullopt;  // each is worth its own sentence
    const auto row = static_cast<std::size_t>(
        std::find_if(missing.begin(), missing.end(), [](int n) { return n > 0; }) -
        missing.begin());
    const std::string text =
        at(static_cast<int>(row)) + ": actions of " +
        count_text(static_cast<std::size_t>(missing[row]), "micro-batch", "es") +
        " are missing, the first is " + first[row] + " (the row has " +
        count_text(count_[row], "computation") + ")";
    if (rows == 1)
      return text + ": was it cut off? Complete it, or say --fragment if the file is a part";
    return text + "; " + count_text(static_cast<std::size_t>(rows - 1), "other row") +
           " lack actions too: complete them, or say --fragment if the file is a part";
  }

  /// The first action that the stage lacks for the micro-batch; "" if none.
  std::string lacking(int stage, int micro_batch, bool forward_only) const {
    const auto text = [&](ActionKind kind) {
      return to_string(Action{kind, StageId(stage), MicroBatchId(micro_batch)});
    };
    const auto there = [&](ActionKind kind) { return has(kind, stage, micro_batch); };
    if (!there(ActionKind::F)) return text(ActionKind::F);
    if (forward_only || there(ActionKind::B)) return "";
    if (!there(ActionKind::I)) return text(there(ActionKind::W) ? ActionKind::I : ActionKind::B);
    return there(ActionKind::W) ? "" : text(ActionKind::W);
  }

  const Order& order_;
  const std::vector<CsvRow>& rows_;
  const std::string& file_;
  std::vector<std::size_t> count_;  // computations of each row
  std::vector<int> first_row_;      // by slot()
  std::vector<Doubled> doubled_;
};

}  // namespace

std::optional<std::string> row_fault(const Order& order, const std::vector<CsvRow>& rows,
                                     const std::string& file) {
  if (holds_calls_alone(order)) return std::nullopt;
  return Rows(order, rows, file).fault();
}

std::vector<std::string> explained_by_row(std::vector<std::string> problems, const Order& order,
                                          std::string_view text, const std::string& file) {
  if (problems.empty() || order.fragment || looks_like_json(text)) return problems;
  if (auto fault = row_fault(order, split_csv(text, file).rows, file)) return {*std::move(fault)};
  return problems;
}

}  // namespace pipewright
