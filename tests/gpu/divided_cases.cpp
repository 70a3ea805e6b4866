// The kernels of layers that ranks divide, against the CPU's operators, bit for bit: whatever part
// of a table or of a row of logits a rank has.
#include <gtest/gtest.h>

#include "core/model/tensor_split.hpp"
#include "exec/base/random.hpp"
#include "exec/layers/ops.hpp"
#include "tests/support/cuda_kernel_fixture.hpp"

namespace pipewright::tests {
namespace divided_cases {

using exec::EmbeddingShape;
using exec::LogitsPart;
using exec::TokenRange;

class CudaDividedKernels : public CudaKernels {
 protected:
  const pipewright_cuda_kernels& fast() const { return cuda_->fast; }
};

std::vector<std::int32_t> ids_below(int count, int below) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back((i * 7919 + 3) % below);
  return ids;
}

void expect_near(const Floats& found, const Floats& expected, float most, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], most * (1 + std::fabs(expected[i]))) << what << " " << i;
}

pipewright_cuda_slice slice_of(const Slice& part) {
  pipewright_cuda_slice slice{part.columns, part.rows.begin, part.width(), {}};
  for (std::size_t i = 0; i < part.ranges.size(); ++i)
    slice.ranges[i] = {part.ranges[i].begin, part.ranges[i].count};
  return slice;
}

TEST_F(CudaDividedKernels, PartsOfWeightsStartAsTheirPlacesInTheWholeDo) {
  constexpr std::uint64_t kKey = 4711;
  const std::vector<Range> qkv = {{0, 12}, {12, 6}, {18, 6}};
  for (const Slice& part : {columns_of(7, qkv, 1, 3), columns_of(7, qkv, 0, 2), rows_of(9, 5, 2, 3),
                            columns_of(1, {{0, 8}}, 3, 4)}) {
    const auto n = static_cast<std::size_t>(part.size());
    const pipewright_cuda_slice slice = slice_of(part);
    float* const y = up(Floats(n, NAN));
    done(kernels().start_part(stream(), n, kKey, 0.25F, 0.0F, &slice, y));
    Floats expected(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto place = static_cast<std::size_t>(part.place_of(static_cast<std::int64_t>(i)));
      expected[i] = 0.25F * exec::symmetric_uniform(kKey, place);
    }
    expect_same_bits(down(y, n), expected, "start");
    done(kernels().start_part(stream(), n, kKey, 0.0F, 1.5F, &slice, y));
    expect_same_bits(down(y, n), Floats(n, 1.5F), "start with a value");
  }
}

TEST_F(CudaDividedKernels, APartOfATokenTableLooksUpItsOwn) {
  const int rows = 30, sequence = 5, width = 11, vocabulary = 12;
  const auto ids = ids_below(rows, vocabulary);
  const std::int32_t* const dev_ids = up(ids);
  const std::size_t n = product(rows, width);
  const Floats positions = random_floats(product(sequence, width), 2), dy = random_floats(n, 3);
  for (const TokenRange own : {TokenRange{0, 4, 12}, {4, 4, 12}, {8, 4, 12}, {0, 12, 12}}) {
    const Floats tokens = random_floats(product(own.count, width), 4);
    for (const bool alone : {false, true}) {
      Floats y = random_floats(n, 5);
      float* const dev_y = up(y);
      exec::look_up({rows, sequence, width}, own, alone, ids.data(), tokens.data(), y.data());
      done(kernels().look_up(stream(), rows, width, own.first, own.count, alone, dev_ids,
                             up(tokens), dev_y));
      expect_same_bits(down(dev_y, n), y, "look up");
    }
    for (const bool has_positions : {false, true}) {
      Floats dtokens = tokens, dpositions = positions;
      float *const to = up(dtokens), *const places = up(dpositions);
      std::int32_t* const links = up(std::vector<std::int32_t>(2 * product(rows, 1), -7));
      exec::look_up_backward_weight({rows, sequence, width}, own, ids.data(), dy.data(),
                                    dtokens.data(), has_positions ? dpositions.data() : nullptr);
      const pipewright_cuda_places in_samples = places_of_whole(sequence);
      done(kernels().look_up_backward_weight(stream(), rows, width, &in_samples, own.first,
                                             own.count, dev_ids, up(dy), links, to,
                                             has_positions ? places : nullptr));
      expect_same_bits(down(to, dtokens.size()), dtokens, "tokens");
      expect_same_bits(down(places, dpositions.size()), dpositions, "positions");
    }
  }
  for (const int first_row : {0, 13}) {
    const EmbeddingShape shape{rows, sequence, width, first_row};
    Floats y = random_floats(n, 6), whole(n);
    const Floats tokens = random_floats(product(vocabulary, width), 7);
    float *const dev_y = up(y), *const dev_whole = up(whole);
    exec::add_positions(shape, positions.data(), y.data());
    const pipewright_cuda_places places = places_of_whole(sequence, first_row);
    done(kernels().add_positions(stream(), rows, width, &places, up(positions), dev_y));
    expect_same_bits(down(dev_y, n), y, "positions");
    exec::embedding_forward(shape, ids.data(), tokens.data(), positions.data(), whole.data());
    done(kernels().embedding_forward(stream(), rows, width, &places, dev_ids, up(tokens),
                                     up(positions), dev_whole));
    expect_same_bits(down(dev_whole, n), whole, "embedding of some rows");
  }
}

/// Members' logits of the same rows, one after another, as exact numerics take turns; then all at
/// once, where the order of a sum does not matter.
TEST_F(CudaDividedKernels, PartsOfLogitsMakeTheLossOfWholeRows) {
  const int rows = 6;
  for (const auto& [width, members] : {std::pair{5, 3}, {65, 4}, {300, 2}, {16, 1}}) {
    const auto labels = ids_below(rows, width * members);
    const std::int32_t* const dev_labels = up(labels);
    const std::size_t own_words = product(rows, width), of_facts = product(rows, members + 1);
    std::vector<Floats> logits;
    std::vector<LogitsPart> parts;
    std::vector<float*> dev_logits;
    for (int m = 0; m < members; ++m) {
      logits.push_back(random_floats(own_words, 20 + static_cast<unsigned>(m)));
      for (float& x : logits.back()) x *= 8;
      parts.push_back({{rows, width}, m * width, m, members});
      dev_logits.push_back(up(logits.back()));
    }
    Floats facts(of_facts, 0.0F), sums(product(rows, exec::kLossLanes), 0.0F);
    float *const dev_facts = up(facts), *const dev_sums = up(sums), *const fast_sums = up(sums);
    for (int m = 0; m < members; ++m) {
      const auto i = static_cast<std::size_t>(m);
      exec::tell_logits(parts[i], logits[i].data(), labels.data(), facts.data());
      done(kernels().tell_logits(stream(), rows, width, m * width, m, members, dev_logits[i],
                                 dev_labels, dev_facts));
    }
    expect_same_bits(down(dev_facts, of_facts), facts, "facts");
    std::vector<Floats> powers;
    std::vector<float*> dev_powers, fast_powers;
    for (int m = 0; m < members; ++m) {
      const auto i = static_cast<std::size_t>(m);
      powers.emplace_back(own_words);
      dev_powers.push_back(up(powers.back()));
      fast_powers.push_back(up(powers.back()));
      exec::add_exponentials(parts[i], logits[i].data(), facts.data(), powers[i].data(),
                             sums.data());
      done(kernels().add_exponentials(stream(), rows, width, m * width, members, dev_logits[i],
                                      dev_facts, dev_powers[i], dev_sums));
      done(fast().add_exponentials(stream(), rows, width, m * width, members, dev_logits[i],
                                   dev_facts, fast_powers[i], fast_sums));
    }
    expect_same_bits(down(dev_sums, sums.size()), sums, "sums");
    for (int m = 0; m < members; ++m) {
      const auto i = static_cast<std::size_t>(m);
      Floats p = powers[i], d(own_words);
      static_cast<void>(exec::finish_cross_entropy(parts[i], facts.data(), sums.data(), p.data()));
      float *const row_facts = up(Floats(3 * product(rows, 1), NAN)), *const dev_d = up(
                                                                          Floats(own_words, NAN));
      done(kernels().finish_cross_entropy(stream(), rows, width, members, dev_facts, dev_sums,
                                          dev_powers[i], row_facts));
      expect_same_bits(down(dev_powers[i], own_words), p, "probabilities");
      done(fast().finish_cross_entropy(stream(), rows, width, members, dev_facts, fast_sums,
                                       fast_powers[i], row_facts));
      expect_near(down(fast_powers[i], own_words), p, 2e-6F, "probabilities, in another order");
      exec::divided_cross_entropy_backward_input(parts[i], p.data(), labels.data(), 0.1F, d.data());
      done(kernels().divided_cross_entropy_backward_input(stream(), rows, width, m * width,
                                                          dev_powers[i], dev_labels, 0.1F, dev_d));
      expect_same_bits(down(dev_d, own_words), d, "gradient");
    }
  }
}

}  // namespace divided_cases
}  // namespace pipewright::tests
