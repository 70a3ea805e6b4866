// The operators of a GPU where ranks divide sequences, against the CPU's: in exact numerics bit for
// bit, on every rank; outside of them within rounding.
#include <gtest/gtest.h>

#include "exec/layers/context_group.hpp"
#include "exec/layers/context_ops.hpp"
#include "tests/support/cuda_operators.hpp"

namespace pipewright::tests {
namespace context_cases {

using exec::Buffer;
using exec::ContextShape;
using exec::Numerics;
using exec::cuda::Bfloat16;
using exec::cuda::Precision;

class CudaContext : public CudaOperators {};

/// Samples of three and of five tokens a chunk; heads that share keys, and heads that do not.
std::vector<ContextShape> shapes() {
  std::vector<ContextShape> all;
  for (const int parts : {2, 3}) {
    for (int index = 0; index < parts; ++index) {
      all.push_back({{.samples = 2, .sequence = 6, .width = 12, .heads = 3}, {index, parts}});
      all.push_back(
          {{.samples = 1, .sequence = 10, .width = 24, .heads = 6, .kv_heads = 2}, {index, parts}});
    }
  }
  return all;
}

TEST_F(CudaContext, AttentionOverTheKeysOfAllRanks) {
  for (const Precision precision : {Precision::Exact, Precision::Float32, Precision::Bfloat16}) {
    precision_ = precision;
    RankOps rank(*cuda_, precision);
    exec::ContextOps& on_gpu = rank.ops().context();
    for (const ContextShape& s : shapes()) {
      SCOPED_TRACE("rank " + std::to_string(s.place.index) + " of " +
                   std::to_string(s.place.parts));
      const std::size_t of_qkv = product(s.own.rows(), s.own.qkv_width()),
                        words = product(s.own.rows(), s.own.width);
      const Floats qkv = random_floats(of_qkv, 1), dcontext = random_floats(words, 2);
      Floats keys = random_floats(s.all_keys(), 3), dkeys = random_floats(s.all_keys(), 4);
      const Buffer own_qkv = rank.up(qkv), all_keys = rank.up(keys), all_dkeys = rank.up(dkeys),
                   own = rank.up(dcontext);
      const std::size_t at = static_cast<std::size_t>(s.place.index) * s.own_keys();
      exec::copy_keys(s, qkv.data(), keys.data() + at);
      on_gpu.copy_keys(s, own_qkv.floats(), rank.ops().at(all_keys.floats(), at));
      expect_alike(rank.down(all_keys, keys.size()), keys, "keys");
      const Buffer ordered = on_gpu.in_order(s, all_keys);
      Floats p(s.probabilities()), context(words), dqkv(of_qkv), scratch(s.scratch());
      exec::context_attention_forward(s, qkv.data(), keys.data(), p.data(), context.data(),
                                      Numerics::Exact);
      const Buffer own_p = rank.nothing(p.size()), own_context = rank.nothing(words),
                   own_dqkv = rank.nothing(of_qkv);
      on_gpu.context_attention_forward(s, own_qkv.floats(), ordered.floats(), own_p.floats(),
                                       own_context.floats());
      expect_alike(rank.down(own_p, p.size()), p, "F, probabilities");
      expect_alike(rank.down(own_context, words), context, "F, context");
      for (int head = 0; head < s.own.queries_a_key(); ++head) {
        for (const int which : {1, 0}) {
          exec::context_attention_backward(s, {head, which}, qkv.data(), keys.data(), p.data(),
                                           dcontext.data(), dqkv.data(), dkeys.data(),
                                           scratch.data(), Numerics::Exact);
          on_gpu.context_attention_backward(s, {head, which}, own_qkv.floats(), ordered.floats(),
                                            own_p.floats(), own.floats(), own_dqkv.floats(),
                                            all_dkeys.floats());
        }
      }
      expect_alike(rank.down(all_dkeys, dkeys.size()), dkeys, "I, all ranks' keys");
      exec::take_key_gradients(s, dkeys.data() + at, dqkv.data());
      on_gpu.take_key_gradients(s, rank.ops().at(all_dkeys.floats(), at), own_dqkv.floats());
      expect_alike(rank.down(own_dqkv, of_qkv), dqkv, "I, own rows");
    }
  }
}

/// A rank's own keys first, then those of the ranks before it.
TEST_F(CudaContext, AttentionOverOneRanksKeysAfterAnother) {
  for (const Precision precision : {Precision::Float32, Precision::Bfloat16}) {
    precision_ = precision;
    RankOps rank(*cuda_, precision);
    exec::ContextOps& on_gpu = rank.ops().context();
    for (const ContextShape& s : shapes()) {
      SCOPED_TRACE("rank " + std::to_string(s.place.index) + " of " +
                   std::to_string(s.place.parts));
      const std::size_t of_qkv = product(s.own.rows(), s.own.qkv_width()),
                        words = product(s.own.rows(), s.own.width),
                        numbers = product(s.own.rows(), s.own.heads);
      const Floats qkv = random_floats(of_qkv, 1), dcontext = random_floats(words, 2);
      const auto keys_of = [&](int hops) {
        return random_floats(s.own_keys(), 30 + static_cast<std::uint64_t>(hops));
      };
      const auto block = [&](int hops) {
        const int index = (s.place.index + s.place.parts - hops) % s.place.parts;
        return exec::RingShape{s, {index, s.place.parts}};
      };
      Floats context(words), largest(numbers), sum(numbers), products(numbers), dqkv(of_qkv),
          scratch(block(0).scratch());
      const Buffer own_qkv = rank.up(qkv), own_dcontext = rank.up(dcontext),
                   own_context = rank.nothing(words), own_dqkv = rank.nothing(of_qkv),
                   own_largest = rank.floats(numbers), own_sum = rank.floats(numbers),
                   own_products = rank.floats(numbers);
      for (int hops = 0; hops < s.place.parts; ++hops) {
        exec::ring_attention_forward(block(hops), qkv.data(), keys_of(hops).data(),
                                     {context.data(), largest.data(), sum.data()}, scratch.data());
        const Buffer keys = rank.up(keys_of(hops));
        on_gpu.ring_attention_forward(
            block(hops), own_qkv.floats(), keys.floats(),
            {own_context.floats(), own_largest.floats(), own_sum.floats()});
      }
      exec::finish_ring_attention(s, {context.data(), largest.data(), sum.data()});
      on_gpu.finish_ring_attention(s,
                                   {own_context.floats(), own_largest.floats(), own_sum.floats()});
      expect_alike(rank.down(own_context, words), context, "F, context");
      expect_alike(rank.copied<float>(own_largest, numbers), largest, "F, log sums");
      exec::context_products(s, context.data(), dcontext.data(), products.data());
      on_gpu.context_products(s, own_context.floats(), own_dcontext.floats(),
                              own_products.floats());
      expect_alike(rank.copied<float>(own_products, numbers), products, "I, products");
      for (int hops = 0; hops < s.place.parts; ++hops) {
        Floats dkeys = random_floats(s.own_keys(), 40);
        const Buffer own_dkeys = rank.up(dkeys), keys = rank.up(keys_of(hops));
        exec::ring_attention_backward(block(hops), qkv.data(), keys_of(hops).data(),
                                      {largest.data(), products.data(), dcontext.data()},
                                      dqkv.data(), dkeys.data(), scratch.data());
        on_gpu.ring_attention_backward(
            block(hops), own_qkv.floats(), keys.floats(),
            {own_largest.floats(), own_products.floats(), own_dcontext.floats()}, own_dqkv.floats(),
            own_dkeys.floats());
        expect_alike(rank.down(own_dkeys, dkeys.size()), dkeys, "I, keys");
      }
      const auto queries_of = [&](const Floats& all) {
        Floats queries;
        for (int r = 0; r < s.own.rows(); ++r) {
          const auto row = all.begin() + static_cast<std::ptrdiff_t>(product(r, s.own.qkv_width()));
          queries.insert(queries.end(), row, row + s.own.width);
        }
        return queries;
      };
      expect_alike(queries_of(rank.down(own_dqkv, of_qkv)), queries_of(dqkv), "I, queries");
    }
  }
}

/// Also of some of a rank's rows, in whatever order of the sequences' turns.
TEST_F(CudaContext, PositionsAreThoseOfTheSequence) {
  RankOps rank(*cuda_, Precision::Exact);
  const int width = 7, samples = 3, sequence = 6, vocabulary = 5;
  std::vector<std::int32_t> ids;
  for (int r = 0; r < samples * sequence; ++r) ids.push_back(r * r % vocabulary);
  const std::int32_t* const dev_ids = up(ids);
  for (const ContextPlace place : {ContextPlace{0, 2}, {1, 2}, {2, 3}}) {
    const std::size_t n = product(samples * sequence, width);
    const Floats tokens = random_floats(product(vocabulary, width), 5), dy = random_floats(n, 6),
                 positions = random_floats(product(sequence * place.parts, width), 7);
    const exec::EmbeddingShape all{samples * sequence, sequence, width, 0, place};
    Floats y(n), dtokens = tokens, dpositions = positions;
    float *const dev_y = up(y), *const dev_tokens = up(tokens),
                 *const dev_positions = up(positions), *const dev_dtokens = up(dtokens),
                 *const dev_dpositions = up(dpositions), *const dev_dy = up(dy);
    exec::embedding_forward(all, ids.data(), tokens.data(), positions.data(), y.data());
    const pipewright_cuda_places places = exec::cuda::places_of(all);
    done(kernels().embedding_forward(stream(), all.rows, width, &places, dev_ids, dev_tokens,
                                     dev_positions, dev_y));
    expect_same_bits(down(dev_y, n), y, "embedding F");
    std::int32_t* const links = up(std::vector<std::int32_t>(2 * ids.size(), -7));
    for (const exec::ChainTurn& turn : exec::turns_of_rows(samples, sequence, place.parts)) {
      if (turn.member != place.index) continue;
      exec::EmbeddingShape some = all;
      some.rows = static_cast<int>(turn.own.count);
      some.first_row = static_cast<int>(turn.own.begin);
      const auto first = static_cast<std::size_t>(turn.own.begin);
      const std::size_t at = first * static_cast<std::size_t>(width);
      exec::embedding_backward_weight(some, ids.data() + first, dy.data() + at, dtokens.data(),
                                      dpositions.data());
      const pipewright_cuda_places of_turn = exec::cuda::places_of(some);
      done(kernels().embedding_backward_weight(stream(), some.rows, width, &of_turn,
                                               dev_ids + first, dev_dy + at, links, dev_dtokens,
                                               dev_dpositions));
    }
    expect_same_bits(down(dev_dtokens, dtokens.size()), dtokens, "tokens");
    expect_same_bits(down(dev_dpositions, dpositions.size()), dpositions, "positions");
    Floats turned = random_floats(product(samples * sequence, 2 * 4), 8);
    const Buffer on_gpu = rank.up(turned);
    const exec::RotaryShape rotary{.samples = samples,
                                   .sequence = sequence,
                                   .heads = 2,
                                   .head_width = 4,
                                   .stride = 8,
                                   .base = 100,
                                   .context = place};
    Floats scratch(rotary.scratch());
    exec::rotate(rotary, false, turned.data(), scratch.data());
    rank.ops().llama().rotate(rotary, false, on_gpu.floats());
    expect_same_bits(rank.down(on_gpu, turned.size()), turned, "rotary positions");
  }
}

/// In packs and one by one.
TEST_F(CudaContext, ColumnsAreCopied) {
  struct Columns {
    int rows, width, from_stride, from, to_stride, to;
  };
  for (const Columns& c : {Columns{5, 3, 7, 2, 4, 1},
                           {6, 16, 48, 16, 32, 8},
                           {9, 8, 8, 0, 24, 4},
                           {300, 64, 192, 64, 64, 0}}) {
    const Floats from = random_floats(product(c.rows + 1, c.from_stride), 9),
                 before = random_floats(product(c.rows + 1, c.to_stride), 10);
    for (const float factor : {1.0F, 0.3F}) {
      Floats to = before;
      for (int r = 0; r < c.rows; ++r) {
        for (int j = 0; j < c.width; ++j) {
          const float x = from[product(r, c.from_stride) + static_cast<std::size_t>(c.from + j)];
          to[product(r, c.to_stride) + static_cast<std::size_t>(c.to + j)] = factor * x;
        }
      }
      float* const dev_to = up(before);
      done(kernels().copy_columns(stream(), c.rows, c.width, factor, up(from) + c.from,
                                  c.from_stride, dev_to + c.to, c.to_stride));
      expect_same_bits(down(dev_to, to.size()), to, "columns");
      const std::vector<Bfloat16> narrow_from(from.begin(), from.end()),
          narrow_before(before.begin(), before.end());
      std::vector<Bfloat16> narrow(narrow_before);
      for (int r = 0; r < c.rows; ++r) {
        for (int j = 0; j < c.width; ++j) {
          const float x =
              narrow_from[product(r, c.from_stride) + static_cast<std::size_t>(c.from + j)];
          narrow[product(r, c.to_stride) + static_cast<std::size_t>(c.to + j)] = factor * x;
        }
      }
      Bfloat16* const dev_narrow = up(narrow_before);
      done(cuda_->bf16.copy_columns(stream(), c.rows, c.width, factor, up(narrow_from) + c.from,
                                    c.from_stride, dev_narrow + c.to, c.to_stride));
      const std::vector<Bfloat16> found = down(dev_narrow, narrow.size());
      expect_same_bits({found.begin(), found.end()}, {narrow.begin(), narrow.end()}, "columns");
    }
  }
}

/// A GPU's logarithm may differ in the last bit.
TEST_F(CudaContext, LossesOfRowsAreTakenInDouble) {
  const int rows = 70;
  const Floats facts = [&] {
    Floats made = random_floats(product(rows, 3), 11, 20.0F);
    for (std::size_t r = 0; r < product(rows, 1); ++r) made[3 * r + 1] = 1 + std::fabs(made[3 * r]);
    return made;
  }();
  double* const losses = up(std::vector<double>(product(rows, 1)));
  for (const int of_row : {3, 1}) {
    done(kernels().losses_of_rows(stream(), rows, of_row, up(facts), losses));
    const std::vector<double> found = down(losses, product(rows, 1));
    for (std::size_t r = 0; r < found.size(); ++r) {
      const double expected =
          of_row == 1
              ? static_cast<double>(facts[r])
              : std::log(static_cast<double>(facts[3 * r + 1])) +
                    (static_cast<double>(facts[3 * r]) - static_cast<double>(facts[3 * r + 2]));
      EXPECT_NEAR(found[r], expected, 1e-14 * (1 + std::fabs(expected)));
    }
  }
}

}  // namespace context_cases
}  // namespace pipewright::tests
