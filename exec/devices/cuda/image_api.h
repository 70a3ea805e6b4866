/* Of a table of kernels (exec/devices/cuda/module_api.h) those of image models. Names, layouts and
 * maths are those of exec/layers/image_ops.hpp; numbers are the table's own where an array is
 * void*. */
#ifndef PIPEWRIGHT_EXEC_CUDA_IMAGE_API_H
#define PIPEWRIGHT_EXEC_CUDA_IMAGE_API_H

#include <stddef.h>
#include <stdint.h>

/* A window that moves over all channels of images, and where it stands: out_height x out_width
 * places. */
typedef struct pipewright_cuda_window {
  int images, channels, height, width, out_height, out_width;
  int size, stride, padding;
} pipewright_cuda_window;

typedef struct pipewright_cuda_channels {
  int images, channels, pixels;
} pipewright_cuda_channels;

/* Where patches lie as columns: the number of a patch's row (channel, y, x) that an image has at a
 * place is number row * row_step + image * image_step + place. */
typedef struct pipewright_cuda_columns {
  int64_t row_step, image_step;
} pipewright_cuda_columns;

/* A channel's running statistics, moved by `rate` towards what micro_batches[0] micro-batches have
 * added up; where that is 0, by nothing. */
typedef struct pipewright_cuda_statistics {
  int channels;
  float rate;
  const float *means, *variances, *micro_batches;
  float *mean, *variance, *updates;
} pipewright_cuda_statistics;

/* Floats of `scratch`. */
#define PIPEWRIGHT_CUDA_CHANNEL_WORDS(images, channels) \
  (2 * ((size_t)(images) + 1) * (size_t)(channels))

typedef struct pipewright_cuda_image_kernels {
  int (*unfold)(void* stream, const pipewright_cuda_window* window,
                const pipewright_cuda_columns* where, const void* x, void* columns);
  /* dx: what the columns hold of each number, added up row by row. */
  int (*fold)(void* stream, const pipewright_cuda_window* window,
              const pipewright_cuda_columns* where, const void* columns, void* dx);
  /* y[channels][images][pixels] = x[images][channels][pixels] */
  int (*gather_channels)(void* stream, const pipewright_cuda_channels* shape, const void* x,
                         void* y);
  /* adds 0: y = factor · x. */
  int (*add_scaled)(void* stream, size_t n, float factor, const float* x, int adds, float* y);
  int (*add_one)(void* stream, int adds, float* y);
  int (*channel_bias_forward)(void* stream, const pipewright_cuda_channels* shape, const void* bias,
                              void* y);
  int (*channel_bias_backward_weight)(void* stream, const pipewright_cuda_channels* shape,
                                      const void* dy, float* scratch, int adds, float* dbias);
  int (*batch_statistics)(void* stream, const pipewright_cuda_channels* shape, const void* x,
                          float* scratch, float* mean, float* variance);
  int (*batch_norm_forward)(void* stream, const pipewright_cuda_channels* shape, const void* x,
                            const float* mean, const float* variance, const void* scale,
                            const void* shift, void* y);
  int (*batch_norm_backward_input)(void* stream, const pipewright_cuda_channels* shape,
                                   const void* x, const float* mean, const float* variance,
                                   const void* scale, const void* dy, float* scratch, void* dx,
                                   float* dscale, float* dshift);
  int (*move_statistics)(void* stream, const pipewright_cuda_statistics* of);
  int (*max_pool_forward)(void* stream, const pipewright_cuda_window* window, const void* x,
                          void* y, int32_t* places);
  int (*max_pool_backward_input)(void* stream, const pipewright_cuda_window* window,
                                 const int32_t* places, const void* dy, void* dx);
  int (*average_pool_forward)(void* stream, const pipewright_cuda_window* window, const void* x,
                              void* y);
  int (*average_pool_backward_input)(void* stream, const pipewright_cuda_window* window,
                                     const void* dy, void* dx);
  int (*global_average_pool_forward)(void* stream, const pipewright_cuda_channels* shape,
                                     const void* x, void* y);
  int (*global_average_pool_backward_input)(void* stream, const pipewright_cuda_channels* shape,
                                            const void* dy, void* dx);
} pipewright_cuda_image_kernels;

#endif
