// Latent attention's kernels, and its operators on a GPU against the CPU's: in exact numerics bit
// for bit, of whole sequences and of every rank's chunks of them; outside of them within rounding.
#include <gtest/gtest.h>

#include "exec/devices/cpu/kernels/rotary.hpp"
#include "exec/layers/context_ops.hpp"
#include "exec/layers/latent_ops.hpp"
#include "tests/support/cuda_operators.hpp"

namespace pipewright::tests {
namespace latent_cases {

using exec::Buffer;
using exec::ContextLatentShape;
using exec::LatentShape;
using exec::Numerics;
using exec::cuda::Bfloat16;
using exec::cuda::Precision;
using Narrow = std::vector<Bfloat16>;

class CudaLatent : public CudaOperators {
 protected:
  /// launch(table, arrays..., y) makes y from the arrays: the CPU's bits in the tables of floats;
  /// in that of bfloat16 the floats of the fast one from the same numbers, rounded once.
  template <class Launch, class... Arrays>
  void expect_bits(const Launch& launch, const Floats& start, const Floats& expected,
                   const char* what, const Arrays&... arrays) {
    for (const auto* table : {&kernels(), &cuda_->fast}) {
      float* const y = up(start);
      done(launch(*table, up(arrays)..., y));
      expect_same_bits(down(y, start.size()), expected, what);
    }
    const auto narrow = [](const Floats& of) { return Narrow(of.begin(), of.end()); };
    const auto rounded = [&](const Floats& of) {
      const Narrow all = narrow(of);
      return Floats(all.begin(), all.end());
    };
    float* const floats = up(rounded(start));
    Bfloat16* const numbers = up(narrow(start));
    done(launch(cuda_->fast, up(rounded(arrays))..., floats));
    done(launch(cuda_->bf16, up(narrow(arrays))..., numbers));
    const Narrow found = down(numbers, start.size());
    expect_same_bits({found.begin(), found.end()}, rounded(down(floats, start.size())), what);
  }
};

/// Heads that begin and end packs, and others; a rotary part behind a plain one, or alone.
TEST_F(CudaLatent, NeighboursAreTurnedAsTheCpuTurnsThem) {
  for (const int rotary : {2, 6, 16, 64}) {
    for (const int plain : {0, 5, 32}) {
      for (const int heads : {1, 3}) {
        const exec::RotaryShape s{.samples = 2,
                                  .sequence = 9,
                                  .heads = heads,
                                  .head_width = rotary,
                                  .stride = heads * (plain + rotary),
                                  .base = 10000,
                                  .head_stride = plain + rotary,
                                  .neighbours = true};
        const int rows = s.samples * s.sequence;
        const Floats x = random_floats(product(rows, s.stride), 1);
        Floats turns(s.scratch()), scratch(s.scratch());
        exec::cpu::fill_turns(s, turns.data());
        float* const own_turns = up(turns);
        for (const bool back : {false, true}) {
          Floats expected = x;
          exec::rotate(s, back, expected.data() + plain, scratch.data());
          const auto turn = [&](const pipewright_cuda_kernels& table, auto* y) {
            return table.rotate_neighbours(stream(), rows, s.sequence, heads, rotary, s.stride,
                                           s.head_stride, back ? 1 : 0, own_turns, y + plain);
          };
          expect_bits(turn, x, expected, "turned");
        }
      }
    }
  }
}

struct Parts {
  int rows, heads, plain, rotary, value;
};
constexpr Parts kParts[] = {{1, 1, 1, 2, 1},   {7, 3, 5, 4, 7},    {9, 2, 8, 8, 16},
                            {6, 4, 16, 8, 24}, {70, 5, 12, 4, 20}, {1200, 2, 128, 64, 128}};

TEST_F(CudaLatent, KeysArePutTogether) {
  for (const auto& [rows, heads, plain, rotary, value] : kParts) {
    const Floats keys_values = random_floats(product(rows, heads * (plain + value)), 2),
                 rotary_key = random_floats(product(rows, rotary), 3);
    Floats expected;
    for (int r = 0; r < rows; ++r) {
      const auto turned = rotary_key.begin() + r * rotary;
      for (int h = 0; h < heads; ++h) {
        const auto own = keys_values.begin() + (r * heads + h) * (plain + value);
        expected.insert(expected.end(), own, own + plain);
        expected.insert(expected.end(), turned, turned + rotary);
      }
    }
    const Parts of{rows, heads, plain, rotary, value};
    const auto join = [&](const pipewright_cuda_kernels& table, auto* kv, auto* one, auto* keys) {
      return table.join_keys(stream(), of.rows, of.heads, of.plain, of.rotary, of.value, kv, one,
                             keys);
    };
    expect_bits(join, Floats(expected.size(), NAN), expected, "keys", keys_values, rotary_key);
  }
}

/// Few rows, and as many as fill a GPU with packs.
TEST_F(CudaLatent, HeadsAreAddedInOrder) {
  for (const Parts& of : {kParts[0], kParts[1], kParts[3], Parts{9000, 3, 0, 64, 0}}) {
    const Floats by_head = random_floats(product(of.rows, of.heads * of.rotary), 4),
                 before = random_floats(product(of.rows, of.rotary), 5);
    Floats expected = before;
    exec::add_heads(of.rows, of.heads, of.rotary, by_head.data(), expected.data());
    const auto add = [&](const pipewright_cuda_kernels& table, auto* heads, auto* y) {
      return table.add_heads(stream(), of.rows, of.heads, of.rotary, heads, y);
    };
    expect_bits(add, before, expected, "sums", by_head);
  }
}

/// Widths of whole packs, and others.
constexpr LatentWidths kWidths[] = {
    {.query_rank = 0, .key_value_rank = 1, .plain = 5, .rotary = 4, .value = 3},
    {.query_rank = 0, .key_value_rank = 1, .plain = 16, .rotary = 8, .value = 24}};

TEST_F(CudaLatent, AttentionOfWholeSequences) {
  for (const Precision precision : {Precision::Exact, Precision::Float32, Precision::Bfloat16}) {
    precision_ = precision;
    RankOps rank(*cuda_, precision);
    for (const LatentWidths& widths : kWidths) {
      const LatentShape s{.samples = 2, .sequence = 7, .heads = 3, .widths = widths};
      const std::size_t of_queries = product(s.rows(), s.query_width()),
                        of_keys = product(s.rows(), s.key_value_width()),
                        of_rotary = product(s.rows(), s.rotary_width()),
                        words = product(s.rows(), s.context_width());
      const Floats q = random_floats(of_queries, 1), kv = random_floats(of_keys, 2),
                   turned = random_floats(product(s.rows(), widths.rotary), 3),
                   dcontext = random_floats(words, 4);
      Floats p(s.probabilities()), context(words), dq(of_queries), dkv(of_keys), drotary(of_rotary),
          scratch(s.scratch());
      exec::latent_attention_forward(s, {q.data(), kv.data(), turned.data()}, p.data(),
                                     context.data(), Numerics::Exact);
      exec::latent_attention_backward_input(
          s, {q.data(), kv.data(), turned.data()}, p.data(), dcontext.data(),
          {dq.data(), dkv.data(), drotary.data()}, scratch.data(), Numerics::Exact);
      const Buffer own_q = rank.up(q), own_kv = rank.up(kv), own_turned = rank.up(turned),
                   own_dcontext = rank.up(dcontext),
                   own_kept = rank.ops().latent().take_of_latent_attention(s),
                   own_context = rank.nothing(words), own_dq = rank.nothing(of_queries),
                   own_dkv = rank.nothing(of_keys), own_drotary = rank.nothing(of_rotary);
      exec::LatentOps& on_gpu = rank.ops().latent();
      const exec::LatentInputs inputs{own_q.floats(), own_kv.floats(), own_turned.floats()};
      on_gpu.latent_attention_forward(s, inputs, own_kept.floats(), own_context.floats());
      on_gpu.latent_attention_backward_input(
          s, inputs, own_kept.floats(), own_context.floats(), own_dcontext.floats(),
          {own_dq.floats(), own_dkv.floats(), own_drotary.floats()});
      expect_alike(rank.down(own_context, words), context, "F, context");
      expect_alike(rank.down(own_dq, of_queries), dq, "I, queries");
      expect_alike(rank.down(own_dkv, of_keys), dkv, "I, keys and values");
      expect_alike(rank.down(own_drotary, of_rotary), drotary, "I, rotary keys");
    }
  }
}

TEST_F(CudaLatent, AttentionOverTheKeysOfAllRanks) {
  for (const Precision precision : {Precision::Exact, Precision::Float32, Precision::Bfloat16}) {
    precision_ = precision;
    RankOps rank(*cuda_, precision);
    exec::ContextOps& on_gpu = rank.ops().context();
    for (const auto& [index, parts] : {std::pair{0, 2}, {1, 2}, {0, 3}, {2, 3}}) {
      for (const LatentWidths& widths : kWidths) {
        SCOPED_TRACE("rank " + std::to_string(index) + " of " + std::to_string(parts));
        const ContextLatentShape s{{.samples = 2, .sequence = 6, .heads = 3, .widths = widths},
                                   {index, parts}};
        const std::size_t of_queries = s.of_own(s.own.query_width()),
                          words = s.of_own(s.own.context_width());
        const Floats q = random_floats(of_queries, 1), dcontext = random_floats(words, 2),
                     keys = random_floats(s.of_all(s.keys_width()), 3);
        Floats dkeys = random_floats(s.of_all(s.gradients_width()), 4), p(s.probabilities()),
               context(words), dq(of_queries), scratch(s.chunks().scratch());
        const Buffer own_q = rank.up(q), own_dcontext = rank.up(dcontext),
                     own_dkeys = rank.up(dkeys), own_p = rank.nothing(p.size()),
                     own_context = rank.nothing(words), own_dq = rank.nothing(of_queries);
        const Buffer ordered = on_gpu.in_order(s, rank.up(keys));
        exec::context_latent_forward(s, q.data(), keys.data(), p.data(), context.data(),
                                     Numerics::Exact);
        on_gpu.context_latent_forward(s, own_q.floats(), ordered.floats(), own_p.floats(),
                                      own_context.floats());
        for (const int which : {1, 0}) {
          exec::context_latent_backward(s, which, q.data(), keys.data(), p.data(), dcontext.data(),
                                        dq.data(), dkeys.data(), scratch.data(), Numerics::Exact);
          on_gpu.context_latent_backward(s, which, own_q.floats(), ordered.floats(), own_p.floats(),
                                         own_dcontext.floats(), own_dq.floats(),
                                         own_dkeys.floats());
        }
        expect_alike(rank.down(own_p, p.size()), p, "F, probabilities");
        expect_alike(rank.down(own_context, words), context, "F, context");
        expect_alike(rank.down(own_dq, of_queries), dq, "I, queries");
        expect_alike(rank.down(own_dkeys, dkeys.size()), dkeys, "I, all ranks' keys");
      }
    }
  }
}

}  // namespace latent_cases
}  // namespace pipewright::tests
