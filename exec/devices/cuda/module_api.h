/* What libpipewright_cuda.so offers: what only CUDA can do, as a C table, so that the command is
 * built and started without CUDA. All logic lies on the other side of this table, and can be tested
 * on another table (tests/support/host_cuda.hpp).
 *
 * Functions that return int give 0, or not 0 if the call failed; those that return a pointer give
 * NULL then. why() has the sentence for the calling thread's last failure. Pointers to floats, ids
 * and words lead into the GPU's memory. Work is put on a stream and the call returns; nothing here
 * waits but wait_for_event(), the functions that make things, and those that release them.
 * enter() chooses GPU and partition for the calling thread; what is made afterwards belongs there.
 * Any thread may call, different objects at once. */
#ifndef PIPEWRIGHT_EXEC_CUDA_MODULE_API_H
#define PIPEWRIGHT_EXEC_CUDA_MODULE_API_H

#include <stddef.h>
#include <stdint.h>

#include "exec/devices/cuda/image_api.h"

#define PIPEWRIGHT_CUDA_ABI 13
#define PIPEWRIGHT_CUDA_ENTRY "pipewright_cuda_entry"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pipewright_cuda_gpu {
  char name[256];
  int sms;          /* streaming multiprocessors */
  int major, minor; /* compute capability */
  int64_t memory_bytes;
  /* Of partitions of SMs (green contexts); 0 where this driver has none. */
  int least_partition_sms, partition_alignment_sms;
} pipewright_cuda_gpu;

/* 13000 is 13.0; driver: the newest CUDA that it knows, 0 without one. */
typedef struct pipewright_cuda_versions {
  int runtime, driver, blas;
} pipewright_cuda_versions;

/* Where the matrices of a batch lie: matrix (outer, inner) begins at outer · outer_step +
 * inner · inner_step numbers. Row major, `stride` numbers from row to row; transposed: read with
 * rows and columns exchanged. */
typedef struct pipewright_cuda_matrix {
  const void* data;
  int stride, transposed;
  int64_t outer_step, inner_step;
} pipewright_cuda_matrix;

/* c[m][n] = alpha · a · b + beta · c, for each of outer x inner matrices. */
typedef struct pipewright_cuda_gemm {
  int m, n, k, outer, inner;
  float alpha, beta;
  pipewright_cuda_matrix a, b;
  void* c;
  int c_stride;
  int64_t c_outer_step, c_inner_step;
  int c_is_float; /* where a and b are bfloat16: gradients of weights add up in float32 */
  /* Of one product, in the same launch, where gemm_fuses() says so: numbers[n] that are added to
   * each row of c, or NULL; and where the sums of b's columns go, float[n], or NULL. */
  const void* bias;
  float* column_sums;
} pipewright_cuda_gemm;

/* How cuBLAS multiplies: float32 throughout; factors rounded to TF32; matrices of bfloat16. Sums
 * are float32. */
enum { PIPEWRIGHT_CUDA_FP32 = 0, PIPEWRIGHT_CUDA_TF32 = 1, PIPEWRIGHT_CUDA_BF16 = 2 };

/* Numbers from row to row, and in a row from head to head. */
typedef struct pipewright_cuda_heads {
  int stride, step;
} pipewright_cuda_heads;
/* Causal attention of all heads of all samples; each of key_heads serves heads / key_heads. Queries
 * and keys are head_width wide, values and contexts value_width. */
typedef struct pipewright_cuda_attention {
  int samples, sequence, heads, key_heads, head_width, value_width;
  pipewright_cuda_heads queries, keys, values;
} pipewright_cuda_attention;

/* The numbers of a matrix of so many columns that lie in rows from first_row on and in these ranges
 * of columns, `width` in a row. */
#define PIPEWRIGHT_CUDA_SLICE_RANGES 4
typedef struct pipewright_cuda_range {
  int64_t begin, count;
} pipewright_cuda_range;
typedef struct pipewright_cuda_slice {
  int64_t columns, first_row, width;
  pipewright_cuda_range ranges[PIPEWRIGHT_CUDA_SLICE_RANGES];
} pipewright_cuda_slice;

/* Where the rows that a rank has of a micro-batch lie in their sequences. They follow first_row
 * others; of each sample there are `sequence`, the first half of them at the places from begins[0]
 * on, the others from begins[1] on: core/model/context_split.hpp, where ranks divide sequences. */
typedef struct pipewright_cuda_places {
  int first_row, sequence, begins[2];
} pipewright_cuda_places;

/* Scores of causal attention: matrices [rows][columns], `step` numbers apart (their gradients:
 * gradient_step), of queries that follow `first` others of their sequence. A row has as many keys
 * as the query's place and one more. */
typedef struct pipewright_cuda_causal {
  int matrices, rows, first, columns;
  int64_t step, gradient_step;
} pipewright_cuda_causal;

/* Where keys and values go round (exec/layers/ring_ops.hpp): scores [samples][heads][chunk][chunk]
 * of the first (0) or second (1) chunk of a rank's `sequence` rows of each sample, and of a chunk of
 * keys; is_causal: the same chunk, of which a row sees the keys up to its own place. It comes
 * first. */
typedef struct pipewright_cuda_ring {
  int samples, sequence, heads, head_width, chunk, which, is_causal;
} pipewright_cuda_ring;
/* How a router chooses (docs/plan-format.md, "Mixtures of experts"). Groups: of experts; 1 where
 * there are none. */
typedef struct pipewright_cuda_router {
  int experts, top_k, sigmoid, normalises, groups, top_groups;
  float scaling;
} pipewright_cuda_router;

/* Rows are placed in blocks of so many. */
#define PIPEWRIGHT_CUDA_ROUTED_ROWS 64

/* One AdamW step's factors, as exec/devices/cpu/kernels/optimizer.cpp names them. */
typedef struct pipewright_cuda_adamw {
  float keep_mean, take_mean, keep_square, take_square, rate, square_correction, epsilon,
      keep_value;
} pipewright_cuda_adamw;

/* What a GPU has done: a kernel, a copy, or memory that was cleared. */
enum { PIPEWRIGHT_CUDA_KERNEL = 0, PIPEWRIGHT_CUDA_COPY = 1, PIPEWRIGHT_CUDA_CLEAR = 2 };
typedef struct pipewright_cuda_activity {
  int kind, gpu;
  /* Of the profiler's own numbers; a stream's is one of its context. */
  uint32_t context, stream;
  /* What the thread that put it there was about; of a graph's, the one that captured it. 0: none.
   */
  uint64_t about;
  int64_t start_ns, end_ns; /* by the clock of record_activities() */
  int64_t bytes;            /* of a copy, or of what was cleared */
  const char* name;         /* of a kernel, as the linker knows it */
} pipewright_cuda_activity;

/* The kernels that cuBLAS lacks. Names, layouts and maths are those of exec/layers/ops.hpp. `bad`
 * is set to 1 where a number does not fit, and never cleared. `adds` 0: what is there is
 * overwritten.
 *
 * Activations, their gradients and the weights that layers read are void*: numbers of the table's
 * own, floats, or bfloat16 (exec/devices/cuda/bfloat16.hpp). Arrays begin at 32 bytes, rows
 * anywhere. What is computed with them, and all float*, is float32. */
typedef struct pipewright_cuda_kernels {
  /* Element by element. dx may be dy. */
  int (*bias_forward)(void* stream, int rows, int width, const void* bias, void* y);
  int (*relu_forward)(void* stream, size_t n, const void* x, void* y);
  int (*relu_backward_input)(void* stream, size_t n, const void* y, const void* dy, void* dx);
  int (*gelu_forward)(void* stream, size_t n, const void* x, void* y);
  int (*gelu_backward_input)(void* stream, size_t n, const void* x, const void* dy, void* dx);
  int (*swiglu_forward)(void* stream, int rows, int width, const void* x, void* y);
  int (*swiglu_backward_input)(void* stream, int rows, int width, const void* x, const void* dy,
                               void* dx);
  /* In place, the pairs of each head that lie half a head apart; turns[sequence][head_width]: of a
   * place in the sequence the cosines of all pairs, then the sines. `back`: by the negative. */
  int (*rotate)(void* stream, int rows, int sequence, int heads, int head_width, int stride,
                int back, const float* turns, void* x);
  int (*add_to)(void* stream, size_t n, const void* x, void* y);
  int (*scale)(void* stream, size_t n, float factor, float* y);
  /* The same; the factor lies in the GPU's memory, and is read when the work is done. */
  int (*scale_by)(void* stream, size_t n, const float* factor, float* y);
  /* y = x, rounded. */
  int (*round)(void* stream, size_t n, const float* x, void* y);
  /* How weights start (exec/layers/parameters.hpp): the key's numbers in ±bound, or value. */
  int (*start)(void* stream, size_t n, uint64_t key, float bound, float value, float* y);
  int (*embedding_forward)(void* stream, int rows, int width, const pipewright_cuda_places* places,
                           const int32_t* ids, const void* tokens, const void* positions, void* y);
  int (*cross_entropy_backward_input)(void* stream, int rows, int width, const void* probabilities,
                                      const int32_t* labels, float scale, void* dlogits);
  int (*mse_backward_input)(void* stream, size_t n, const void* y, const float* target, float scale,
                            void* dy);
  /* `read`: what layers read of the weights, values rounded to bfloat16; NULL where they read the
   * values themselves. */
  int (*sgd)(void* stream, size_t n, float rate, const float* gradient, float* value, void* read);
  /* factors[2] lie in the GPU's memory, and are read when the work is done: those of the elements
   * below second_from, and of the others. */
  int (*adamw)(void* stream, size_t n, size_t second_from, const pipewright_cuda_adamw* factors,
               const float* gradient, float* mean, float* square, float* value, void* read);
  /* Row by row. */
  int (*layer_norm_forward)(void* stream, int rows, int width, const void* x, const void* scale,
                            const void* shift, void* y, float* mean, float* inverse_deviation);
  int (*layer_norm_backward_input)(void* stream, int rows, int width, const void* x,
                                   const float* mean, const float* inverse_deviation,
                                   const void* scale, const void* dy, void* dx);
  int (*rms_norm_forward)(void* stream, int rows, int width, const void* x, const void* scale,
                          void* y, float* inverse_root);
  int (*rms_norm_backward_input)(void* stream, int rows, int width, const void* x,
                                 const float* inverse_root, const void* scale, const void* dy,
                                 void* dx);
  /* In place; 0 where a row has no key. */
  int (*causal_softmax_forward)(void* stream, const pipewright_cuda_causal* of, void* scores);
  /* Times the factor. */
  int (*causal_softmax_backward_input)(void* stream, const pipewright_cuda_causal* of, float factor,
                                       const void* probabilities, void* d);
  /* row_facts[rows][3]: largest logit, sum of e^(logit - largest), the label's logit; their double
   * logarithm is the host's to take. probabilities may be logits. */
  int (*cross_entropy_forward)(void* stream, int rows, int width, const void* logits,
                               const int32_t* labels, void* probabilities, float* row_facts);
  /* Of a row's outputs those of the columns from `first` on. facts[rows][3]: the largest number; 1
   * where the label's is there and the first that is as large, else 0, as where labels is NULL; 1
   * where all are finite, else 0. */
  int (*judge_rows)(void* stream, int rows, int width, int first, const void* outputs,
                    const int32_t* labels, float* facts);
  /* row_sums[rows] of (y - target)^2. */
  int (*mse_forward)(void* stream, int rows, int width, const void* y, const float* target,
                     float* row_sums);
  /* Column by column, rows in ascending order. scratch[PIPEWRIGHT_CUDA_COLUMN_WORDS]; the exact
   * kernels need none. */
  int (*bias_backward_weight)(void* stream, int rows, int width, const void* dy, float* scratch,
                              int adds, float* dbias);
  int (*layer_norm_backward_weight)(void* stream, int rows, int width, const void* x,
                                    const float* mean, const float* inverse_deviation,
                                    const void* dy, float* scratch, int adds, float* dscale,
                                    float* dshift);
  int (*rms_norm_backward_weight)(void* stream, int rows, int width, const void* x,
                                  const float* inverse_root, const void* dy, float* scratch,
                                  int adds, float* dscale);
  /* Adds. links[2 · rows] is scratch. dpositions may be NULL. */
  int (*embedding_backward_weight)(void* stream, int rows, int width,
                                   const pipewright_cuda_places* places, const int32_t* ids,
                                   const void* dy, int32_t* links, float* dtokens,
                                   float* dpositions);
  /* Where ranks divide weights, token tables by rows, and logits by columns: of a rank's own part.
   * As start(), for numbers of a part of the array. */
  int (*start_part)(void* stream, size_t n, uint64_t key, float bound, float value,
                    const pipewright_cuda_slice* slice, float* y);
  /* Of the tokens [first, first + count) of the table; `alone`: rows of others become 0. */
  int (*look_up)(void* stream, int rows, int width, int first, int count, int alone,
                 const int32_t* ids, const void* tokens, void* y);
  int (*add_positions)(void* stream, int rows, int width, const pipewright_cuda_places* places,
                       const void* positions, void* y);
  /* As embedding_backward_weight(), of those tokens and all positions. */
  int (*look_up_backward_weight)(void* stream, int rows, int width,
                                 const pipewright_cuda_places* places, int first, int count,
                                 const int32_t* ids, const void* dy, int32_t* links,
                                 float* dtokens, float* dpositions);
  /* facts[rows][members + 1]: the member's largest logit into its column, and the label's, where it
   * has it, into the last one. The other columns stay. */
  int (*tell_logits)(void* stream, int rows, int width, int first, int member, int members,
                     const void* logits, const int32_t* labels, float* facts);
  /* exponentials may be logits; added to sums[rows][16], whose parts together are a row's sum. */
  int (*add_exponentials)(void* stream, int rows, int width, int first, int members,
                          const void* logits, const float* facts, void* exponentials, float* sums);
  /* Exponentials to probabilities, in place; row_facts as of cross_entropy_forward(). */
  int (*finish_cross_entropy)(void* stream, int rows, int width, int members, const float* facts,
                              const float* sums, void* probabilities, float* row_facts);
  int (*divided_cross_entropy_backward_input)(void* stream, int rows, int width, int first,
                                              const void* probabilities, const int32_t* labels,
                                              float scale, void* dlogits);
  /* Where ranks divide sequences (exec/layers/context_ops.hpp, exec/layers/ring_ops.hpp). */
  /* Of each row `width` numbers, times the factor; rows begin so many numbers apart. */
  int (*copy_columns)(void* stream, int rows, int width, float factor, const void* from,
                      int from_stride, void* to, int to_stride);
  /* losses[rows], from the rows' facts as the losses leave them, of cross-entropy three numbers and
   * else one. */
  int (*losses_of_rows)(void* stream, int rows, int of_row, const float* facts, double* losses);
  /* Scores become e^(score - largest), and what a row has met before shrinks to that: context[rows]
   * [heads · head_width], largest and sum[rows][heads]. */
  int (*ring_rows_forward)(void* stream, const pipewright_cuda_ring* of, void* scores,
                           void* context, float* largest, float* sum);
  /* context[rows][head_width] is divided by the row's sum, whose logarithm is added to largest. */
  int (*finish_ring)(void* stream, int rows, int head_width, void* context, float* largest,
                     const float* sum);
  /* products[rows] = the sum of a · b. */
  int (*products_of_rows)(void* stream, int rows, int width, const void* a, const void* b,
                          float* products);
  /* Scores become probabilities, and d, their gradients, those of the scores, times the factor. */
  int (*ring_rows_backward)(void* stream, const pipewright_cuda_ring* of, float factor,
                            const float* log_sums, const float* products, void* scores, void* d);
  /* Latent attention: names and layouts of exec/layers/latent_ops.hpp.
   * As rotate(), of pairs of neighbours; heads begin head_stride numbers apart. */
  int (*rotate_neighbours)(void* stream, int rows, int sequence, int heads, int head_width,
                           int stride, int head_stride, int back, const float* turns, void* x);
  /* keys[rows][heads][plain + rotary]: each head's own part, and the one rotary key. */
  int (*join_keys)(void* stream, int rows, int heads, int plain, int rotary, int value,
                   const void* keys_values, const void* rotary_key, void* keys);
  int (*add_heads)(void* stream, int rows, int heads, int width, const void* by_head, void* y);
  /* Mixtures of experts: names and layouts of exec/layers/expert_ops.hpp. Logits, their gradients,
   * weights of chosen experts and counts are float32 in all tables. Of the rows each of `chunks`
   * has as many, and counts are scratch of a number for each expert and each block of
   * PIPEWRIGHT_CUDA_ROUTED_ROWS rows of a chunk.
   * y[rows][width] += bias, of numbers of the table's own. */
  int (*router_bias)(void* stream, int rows, int width, const void* bias, float* y);
  /* bias may be NULL. group_sums[rows][groups] is scratch. */
  int (*route)(void* stream, int rows, const pipewright_cuda_router* router, const float* logits,
               const float* bias, float* group_sums, float* weights, int32_t* expert);
  /* sums[chunks][experts]. */
  int (*count_choices)(void* stream, int rows, int top_k, int chunks, int experts,
                       const int32_t* expert, int32_t* counts, int adds, float* sums);
  int (*balance)(void* stream, int experts, float rate, const float* counts, float* bias);
  /* capacity: negative where nothing is dropped. earlier may be NULL. */
  int (*place_rows)(void* stream, int rows, int top_k, int chunks, int experts, int64_t capacity,
                    const float* earlier, const int32_t* expert, int32_t* counts, int32_t* begin,
                    int32_t* place, int32_t* row);
  /* balance: the balance loss times experts and a row's share of all, z: twice the z loss times
   * that; all: the sum of choices[experts], which may be NULL where balance is 0. dlogits may be
   * logits. */
  int (*route_backward)(void* stream, int rows, const pipewright_cuda_router* router, float balance,
                        float z, float all, const float* logits, const float* weights,
                        const int32_t* expert, const float* choices, const float* dweights,
                        float* dlogits);
  int (*gather_rows)(void* stream, size_t places, int width, const int32_t* row, const void* x,
                     void* gathered);
  /* weights may be NULL: then it is sum_rows(). */
  int (*weigh_rows)(void* stream, int rows, int top_k, int width, const int32_t* place,
                    const float* weights, const void* z, void* y);
  /* Behind the last place dz stays as it is. */
  int (*weigh_rows_backward)(void* stream, int rows, int top_k, int width, const int32_t* place,
                             const float* weights, const void* dy, const void* z, void* dz,
                             float* dweights);
  /* What is behind the first *end of so many rows becomes 0. */
  int (*clear_behind)(void* stream, size_t places, int width, const int32_t* end, void* rows);
  /* Sums of exec/base/fixed_point.hpp: adds the gradient to them and clears it; and back. */
  int (*fixed_add)(void* stream, size_t n, float* gradient, int64_t* high, int64_t* low, int* bad);
  int (*fixed_round)(void* stream, size_t n, const int64_t* high, const int64_t* low,
                     float* gradient);
  /* Adds the squares of x to total[4] (small.high, small.low, large.high, large.low of
   * exec/training/gradient_norm.hpp). partial is scratch of PIPEWRIGHT_CUDA_SQUARE_WORDS words. */
  int (*add_squares)(void* stream, size_t n, const float* x, int64_t* partial, int64_t* total,
                     int* bad);
  /* The factor by which gradients are clipped whose squares add up to totals[count][4], as
   * exec/training/gradient_norm.hpp has it; bad where the sum does not fit. */
  int (*clip_factor)(void* stream, int count, const int64_t* totals, double most, float* factor,
                     int* bad);
  /* The same by way of one number, for whoever adds numbers up: the nearest to total[4], and the
   * factor of a sum of such. */
  int (*squares_as_number)(void* stream, const int64_t* total, double* squares);
  int (*clip_factor_of_number)(void* stream, const double* squares, double most, float* factor);
  /* The matrix product of exec/devices/cpu/kernels/canonical_gemm.hpp: beta is 0, or it and alpha
   * are 1. */
  int (*canonical_gemm)(void* stream, const pipewright_cuda_gemm* gemm);
  /* to[n] = values[n], which are read now. */
  int (*keep_pointers)(void* stream, size_t n, const void* const* values, void** to);
  /* Occupies the stream for so long. */
  int (*delay)(void* stream, int64_t nanoseconds);
  pipewright_cuda_image_kernels images;
} pipewright_cuda_kernels;

/* Sums of squares are taken by so many threads, then by so many, and so on. */
#define PIPEWRIGHT_CUDA_SQUARE_LANES 131072
#define PIPEWRIGHT_CUDA_SQUARE_WORDS (4 * (PIPEWRIGHT_CUDA_SQUARE_LANES + 2048 + 32))
#define PIPEWRIGHT_CUDA_COLUMN_WORDS (4 * 131072)

typedef struct pipewright_cuda {
  int abi; /* PIPEWRIGHT_CUDA_ABI */

  /* --- What there is --- */
  const char* (*why)(void);
  void (*versions)(pipewright_cuda_versions* versions);
  /* -1: failed, so there is no driver, or none that fits. */
  int (*gpus)(void);
  int (*gpu)(int index, pipewright_cuda_gpu* facts);
  /* Of the GPU that the thread has entered. */
  int (*memory)(int64_t* free_bytes, int64_t* total_bytes);

  /* --- GPU and partition --- */
  /* `count` partitions of `sms` SMs each; partitions[count]. */
  int (*split)(int gpu, int sms, int count, void** partitions);
  void (*release_partition)(void* partition);
  /* partition may be NULL: the whole GPU. A partition is current to one thread at a time: another
   * one may enter it when the first has entered something else, or has ended. */
  int (*enter)(int gpu, void* partition);
  /* Lets the entered GPU read another one's memory directly; 0 also if it does already. */
  int (*reach)(int other_gpu);

  /* --- Memory --- */
  void* (*allocate)(size_t bytes);
  void (*release)(void* memory);
  void* (*allocate_pinned)(size_t bytes);
  void (*release_pinned)(void* memory);
  /* Between any of the GPUs' and pinned memory. */
  int (*copy)(void* stream, void* to, const void* from, size_t bytes);
  int (*clear)(void* stream, void* memory, size_t bytes);

  /* --- Streams and events --- */
  void* (*stream)(void* partition);
  void (*release_stream)(void* stream);
  void* (*event)(int is_timed);
  void (*release_event)(void* event);
  int (*record)(void* event, void* stream);
  /* The same of a timed event, for elapsed_ms(). A capture keeps it, and each launch records it
   * anew; within the capture nothing can wait for it. */
  int (*mark)(void* event, void* stream);
  /* Work put on the stream from now on waits for the event's last record. */
  int (*stream_waits)(void* stream, void* event);
  /* 1: passed, or never recorded; 0: not yet; -1: work before it has failed. Several threads may
   * ask for one event. */
  int (*is_over)(void* event);
  int (*wait_for_event)(void* event);
  int (*elapsed_ms)(void* from, void* to, float* ms);

  /* --- cuBLAS --- */
  /* Its kernels are chosen for so many SMs; 0: all that the GPU has. */
  void* (*blas)(void* stream, int sms, void* workspace, size_t workspace_bytes);
  void (*release_blas)(void* blas);
  int (*gemm)(void* blas, const pipewright_cuda_gemm* gemm, int precision);
  /* 1: gemm() does what the bias and column_sums of such a product ask for. */
  int (*gemm_fuses)(void* blas, const pipewright_cuda_gemm* gemm, int precision);
  /* 1: grouped_gemm() takes these. */
  int (*gemms_group)(void* blas, const pipewright_cuda_gemm* gemms, int count, int precision);
  /* As gemm() of each, in one launch: each is one product (outer and inner 1), and no two have a
   * result in common. pointers[3 · count], read when the work is done: where in the GPU's memory
   * all of a, of b and of c begin. */
  int (*grouped_gemm)(void* blas, const pipewright_cuda_gemm* gemms, int count, int precision,
                      void* const* pointers);

  /* --- Graphs --- */
  /* What is put on the stream from now on, and on streams from when they wait for an event of it,
   * is kept and not done. By any threads, one at a time. A stream of a capture waits for no event
   * from before it, and end_capture() fails unless the stream waits for all the others by then. */
  int (*begin_capture)(void* stream);
  void* (*end_capture)(void* stream);
  /* Does all of it once, on the streams' GPUs and partitions, behind what is on this stream. */
  int (*launch)(void* graph, void* stream);
  void (*release_graph)(void* graph);

  /* --- cuDNN's attention, of bfloat16; all NULL in a module that was built without it --- */
  /* Not 0 where the library is not there. */
  int (*attention_is_there)(void);
  int (*attention_version)(void); /* 91400 is 9.14.0 */
  /* For this stream, and so many SMs (0: all that the GPU has). NULL too where cuDNN has none for
   * the shape. */
  void* (*attention)(void* stream, int sms, const pipewright_cuda_attention* shape);
  void (*release_attention)(void* attention);
  size_t (*attention_workspace)(void* attention);
  /* context[rows][heads][value_width]; log_sums[samples][heads][sequence]: the logarithm of a row's
   * sum of exponentials, which the gradient takes in the place of probabilities. Gradients lie as
   * what they are of. */
  int (*attend)(void* attention, const void* queries, const void* keys, const void* values,
                void* context, float* log_sums, void* workspace);
  int (*attend_backward)(void* attention, const void* queries, const void* keys, const void* values,
                         const void* context, const float* log_sums, const void* dcontext,
                         void* dqueries, void* dkeys, void* dvalues, void* workspace);

  /* --- Ranges of the calling thread for profilers (NVTX), in the domain "pipewright"; all NULL in
   * a module that was built without its header --- */
  /* 0: no profiler has attached, and the others need not be called. */
  int (*is_profiled)(void);
  /* Good until the process ends. */
  void* (*range_name)(const char* text);
  void (*begin_range)(void* name);
  /* Of the one that began last. */
  void (*end_range)(void);

  /* --- What the process's GPUs do, one by one (CUPTI); all NULL in a module that was built without
   * its header --- */
  /* Not 0 where the library is not there. */
  int (*activities_are_there)(void);
  int (*activities_version)(void); /* 130001 is 13.0.1 */
  /* From now on, whoever puts the work there. Times are those of now(), in ns, which any thread may
   * call. Of what nobody takes at most `most` are kept. One recording at a time. */
  int (*record_activities)(int64_t (*now)(void), size_t most);
  /* What the calling thread puts on GPUs until the end is about this, not 0; the inner of two. */
  void (*begin_about)(uint64_t what);
  void (*end_about)(void);
  /* Gives `taken` all that was done since the last call, in no order, while nothing is under way;
   * `dropped`: how many there was no room for. */
  int (*take_activities)(void (*taken)(void* by, const pipewright_cuda_activity* activity),
                         void* by, int64_t* dropped);
  void (*stop_activities)(void);

  /* With the CPU's bits; the same for numerics that need not have them, whose sums are taken in
   * another order, by more threads; and these for numbers of bfloat16. */
  pipewright_cuda_kernels kernels, fast, bf16;
} pipewright_cuda;

typedef const pipewright_cuda* (*pipewright_cuda_entry_function)(void);

#ifdef __cplusplus
}
#endif

#endif
