// The kernels of image models as exec/devices/cuda/kernel_table.hpp has the others, for whoever can
// launch.
#pragma once

#include "exec/devices/cuda/channel_elements.hpp"
#include "exec/devices/cuda/image_api.h"
#include "exec/devices/cuda/window_elements.hpp"

namespace pipewright::exec::cuda {

/// Numbers of all images.
inline std::size_t numbers_of(const pipewright_cuda_channels& s) {
  return static_cast<std::size_t>(s.images) * static_cast<std::size_t>(s.channels) *
         static_cast<std::size_t>(s.pixels);
}
inline std::size_t planes_of(const pipewright_cuda_channels& s) {
  return static_cast<std::size_t>(s.images) * static_cast<std::size_t>(s.channels);
}
inline std::size_t planes_of(const pipewright_cuda_window& w) {
  return static_cast<std::size_t>(w.images) * static_cast<std::size_t>(w.channels);
}
inline OfChannels of_channels(const pipewright_cuda_channels& s) {
  return {static_cast<std::size_t>(s.channels), static_cast<std::size_t>(s.pixels)};
}
/// Numbers of a channel in all images.
inline double count_of(const pipewright_cuda_channels& s) { return 1.0 * s.images * s.pixels; }

template <class Launcher, class T>
void fill_windows(pipewright_cuda_image_kernels& k) {
  using Window = pipewright_cuda_window;
  k.unfold = [](void* s, const Window* w, const pipewright_cuda_columns* where, const void* x,
                void* columns) {
    const auto patch = static_cast<std::size_t>(w->size) * static_cast<std::size_t>(w->size);
    return Launcher::elements(
        s, planes_of(*w) * patch * pixels_out(*w),
        Unfold<T>{*w, *where, static_cast<const T*>(x), static_cast<T*>(columns)});
  };
  k.fold = [](void* s, const Window* w, const pipewright_cuda_columns* where, const void* columns,
              void* dx) {
    return Launcher::elements(
        s, planes_of(*w) * pixels_in(*w),
        Fold<T>{*w, *where, static_cast<const T*>(columns), static_cast<T*>(dx)});
  };
  k.max_pool_forward = [](void* s, const Window* w, const void* x, void* y, std::int32_t* places) {
    return Launcher::elements(
        s, planes_of(*w) * pixels_out(*w),
        MaxPoolForward<T>{*w, static_cast<const T*>(x), static_cast<T*>(y), places});
  };
  k.max_pool_backward_input = [](void* s, const Window* w, const std::int32_t* places,
                                 const void* dy, void* dx) {
    return Launcher::elements(
        s, planes_of(*w) * pixels_in(*w),
        MaxPoolBackwardInput<T>{*w, places, static_cast<const T*>(dy), static_cast<T*>(dx)});
  };
  k.average_pool_forward = [](void* s, const Window* w, const void* x, void* y) {
    return Launcher::elements(
        s, planes_of(*w) * pixels_out(*w),
        AveragePoolForward<T>{*w, static_cast<const T*>(x), static_cast<T*>(y)});
  };
  k.average_pool_backward_input = [](void* s, const Window* w, const void* dy, void* dx) {
    return Launcher::elements(
        s, planes_of(*w) * pixels_in(*w),
        AveragePoolBackwardInput<T>{*w, static_cast<const T*>(dy), static_cast<T*>(dx)});
  };
}

/// Rows: who shares a plane.
template <class Launcher, class Rows, class T>
void fill_channels(pipewright_cuda_image_kernels& k) {
  using Channels = pipewright_cuda_channels;
  k.channel_bias_forward = [](void* s, const Channels* c, const void* bias, void* y) {
    return Launcher::elements(
        s, numbers_of(*c),
        ChannelBiasForward<T>{of_channels(*c), static_cast<const T*>(bias), static_cast<T*>(y)});
  };
  k.channel_bias_backward_weight = [](void* s, const Channels* c, const void* dy, float* scratch,
                                      int adds, float* dbias) {
    const int failed =
        Rows::run(s, planes_of(*c), PlaneSums<T>{c->pixels, static_cast<const T*>(dy), scratch});
    if (failed != 0) return failed;
    const auto [channels, pixels] = of_channels(*c);
    return Launcher::elements(s, channels,
                              ChannelTotals{static_cast<std::size_t>(c->images), channels, scratch,
                                            1.0, adds != 0, dbias});
  };
  k.batch_statistics = [](void* s, const Channels* c, const void* x, float* scratch, float* mean,
                          float* variance) {
    const auto images = static_cast<std::size_t>(c->images);
    const auto channels = static_cast<std::size_t>(c->channels);
    const auto total = [&](float* to) {
      return Launcher::elements(s, channels,
                                ChannelTotals{images, channels, scratch, count_of(*c), false, to});
    };
    int failed =
        Rows::run(s, planes_of(*c), PlaneSums<T>{c->pixels, static_cast<const T*>(x), scratch});
    if (failed == 0) failed = total(mean);
    if (failed == 0) {
      failed =
          Rows::run(s, planes_of(*c),
                    PlaneSquares<T>{c->pixels, channels, static_cast<const T*>(x), mean, scratch});
    }
    return failed != 0 ? failed : total(variance);
  };
  k.batch_norm_forward = [](void* s, const Channels* c, const void* x, const float* mean,
                            const float* variance, const void* scale, const void* shift, void* y) {
    return Launcher::elements(
        s, numbers_of(*c),
        BatchNormForward<T>{of_channels(*c), static_cast<const T*>(x), mean, variance,
                            static_cast<const T*>(scale), static_cast<const T*>(shift),
                            static_cast<T*>(y)});
  };
  k.batch_norm_backward_input = [](void* s, const Channels* c, const void* x, const float* mean,
                                   const float* variance, const void* scale, const void* dy,
                                   float* scratch, void* dx, float* dscale, float* dshift) {
    const auto images = static_cast<std::size_t>(c->images);
    const auto channels = static_cast<std::size_t>(c->channels);
    float* const mean_dy = scratch + 2 * planes_of(*c);
    float* const slope = mean_dy + channels;
    int failed =
        Rows::run(s, planes_of(*c),
                  PlaneGradients<T>{c->pixels, channels, planes_of(*c), static_cast<const T*>(x),
                                    static_cast<const T*>(dy), mean, variance, scratch});
    if (failed == 0) {
      failed = Launcher::elements(s, channels,
                                  BatchNormTotals{images, channels, scratch, variance, count_of(*c),
                                                  dscale, dshift, mean_dy, slope});
    }
    if (failed != 0 || dx == nullptr) return failed;
    return Launcher::elements(
        s, numbers_of(*c),
        BatchNormBackwardInput<T>{of_channels(*c), static_cast<const T*>(x), mean, variance,
                                  static_cast<const T*>(scale), static_cast<const T*>(dy), mean_dy,
                                  slope, static_cast<T*>(dx)});
  };
  k.global_average_pool_forward = [](void* s, const Channels* c, const void* x, void* y) {
    return Rows::run(
        s, planes_of(*c),
        GlobalAverageForward<T>{c->pixels, static_cast<const T*>(x), static_cast<T*>(y)});
  };
  k.global_average_pool_backward_input = [](void* s, const Channels* c, const void* dy, void* dx) {
    return Launcher::elements(
        s, numbers_of(*c),
        GlobalAverageBackwardInput<T>{static_cast<std::size_t>(c->pixels),
                                      static_cast<const T*>(dy), static_cast<T*>(dx)});
  };
}

/// `Rows` as of exec/devices/cuda/kernel_table.hpp.
template <class Launcher, class Rows, class T>
pipewright_cuda_image_kernels image_kernels() {
  pipewright_cuda_image_kernels k{};
  fill_windows<Launcher, T>(k);
  fill_channels<Launcher, Rows, T>(k);
  k.gather_channels = [](void* s, const pipewright_cuda_channels* c, const void* x, void* y) {
    return Launcher::elements(s, numbers_of(*c),
                              GatherChannels<T>{static_cast<std::size_t>(c->images),
                                                static_cast<std::size_t>(c->channels),
                                                static_cast<std::size_t>(c->pixels),
                                                static_cast<const T*>(x), static_cast<T*>(y)});
  };
  k.add_scaled = [](void* s, std::size_t n, float factor, const float* x, int adds, float* y) {
    return Launcher::elements(s, n, AddScaled{factor, x, adds != 0, y});
  };
  k.add_one = [](void* s, int adds, float* y) {
    return Launcher::elements(s, 1, AddOne{adds != 0, y});
  };
  k.move_statistics = [](void* s, const pipewright_cuda_statistics* of) {
    return Launcher::elements(s, 2 * static_cast<std::size_t>(of->channels), MoveStatistics{*of});
  };
  return k;
}

}  // namespace pipewright::exec::cuda
