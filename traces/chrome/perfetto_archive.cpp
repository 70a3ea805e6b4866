#include "traces/chrome/perfetto_archive.hpp"

#include <algorithm>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace pipewright::traces {
namespace {

constexpr std::size_t kBlock = 512, kNameBytes = 100;

/// As an octal number of so many digits and a 0 behind them.
void put_octal(std::string& header, std::size_t at, std::size_t digits, std::uint64_t value) {
  for (std::size_t k = digits; k-- > 0; value >>= 3)
    header[at + k] = static_cast<char>('0' + (value & 7));
  PIPEWRIGHT_ASSERT(value == 0, "a file of 8 GiB or more in an archive");
}

void put_text(std::string& header, std::size_t at, std::string_view text) {
  std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
}

std::string header_of(const std::string& name, std::size_t size) {
  PIPEWRIGHT_ASSERT(name.size() <= kNameBytes, "a long name in an archive");
  std::string header(kBlock, '\0');
  put_text(header, 0, name);
  put_octal(header, 100, 7, 0644);  // mode
  put_octal(header, 108, 7, 0);     // user
  put_octal(header, 116, 7, 0);     // group
  put_octal(header, 124, 11, size);
  put_octal(header, 136, 11, 0);              // when it was changed
  put_text(header, 148, "        ");          // counts as blanks in its own sum
  put_text(header, 156, "0");                 // an ordinary file
  put_text(header, 257, {"ustar\00000", 8});  // and its version
  std::uint64_t sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put_octal(header, 148, 6, sum);
  header[154] = '\0';
  return header;
}

void add_file(std::string& archive, const std::string& name, const std::string& bytes) {
  archive += header_of(name, bytes.size());
  archive += bytes;
  archive.resize((archive.size() + kBlock - 1) / kBlock * kBlock, '\0');
}

Json manifest_of(const std::vector<ArchivedTrace>& traces) {
  Json files = Json::array();
  for (const ArchivedTrace& trace : traces) {
    files.push_back({{"path", trace.name}, {"machine", {{"name", trace.label}}}});
    if (files.size() == 1) continue;
    files.back()["clocks"] = {{"sync_to", {{"file", traces.front().name}}},
                              {"offset_ns", trace.offset_ns}};
  }
  return {{"perfetto_manifest", {{"version", 1}, {"files", std::move(files)}}}};
}

}  // namespace

std::string perfetto_archive(const std::vector<ArchivedTrace>& traces) {
  std::string archive;
  add_file(archive, "perfetto_manifest.json", manifest_of(traces).dump(1) + "\n");
  for (const ArchivedTrace& trace : traces) add_file(archive, trace.name, trace.bytes);
  archive.append(2 * kBlock, '\0');
  return archive;
}

}  // namespace pipewright::traces
