#include "exec/spmd/local_array.hpp"

namespace pipewright::exec::graphs {
LocalArray zeros_of(spmd::LocalPart part) {
  LocalArray array{std::move(part), {}};
  array.values.resize(sized(spmd::elements_of(array.part)));
  return array;
}

void pack_box(const LocalArray& from, const spmd::LocalPart& box, float* packed) {
  for_each_row(from.part, box, [&](std::size_t place, std::size_t at, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) packed[at + i] = from.values[place + i];
  });
}

void unpack_box(const float* packed, const spmd::LocalPart& box, LocalArray& to) {
  for_each_row(to.part, box, [&](std::size_t place, std::size_t at, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) to.values[place + i] = packed[at + i];
  });
}

void copy_box(const LocalArray& from, const spmd::LocalPart& box, LocalArray& to, bool adds) {
  std::vector<float> packed(sized(spmd::elements_of(box)));
  pack_box(from, box, packed.data());
  if (adds) {
    std::vector<float> there(packed.size());
    pack_box(to, box, there.data());
    for (std::size_t i = 0; i < packed.size(); ++i) packed[i] += there[i];
  }
  unpack_box(packed.data(), box, to);
}

}  // namespace pipewright::exec::graphs
