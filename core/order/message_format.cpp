#include "core/order/message_format.hpp"

#include <algorithm>
#include <cctype>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/suggest.hpp"
#include "core/order/element_type.hpp"

namespace pipewright {
namespace {

constexpr std::size_t kMostFormats = 10'000;

void read_end(const JsonCursor& value, MessageFormat& format) {
  const std::string text = value.string();
  const bool for_all = !text.empty() && std::isdigit(static_cast<unsigned char>(text.back())) == 0;
  const std::optional<Cell> cell = parse_cell(for_all ? text + "0" : text);
  if (!cell || cell->partner || !is_pipeline_transfer(cell->action.kind)) {
    value.fail("an end of a transfer such as \"0SEND_F\" (of all micro-batches) or \"1RECV_F3\"");
  }
  format.end = cell->action.kind;
  format.stage = cell->action.stage;
  if (!for_all) format.micro_batch = cell->action.micro_batch;
}

std::string read_type(const JsonCursor& value) {
  const std::string text = value.string();
  const ElementType* type = element_type(text);
  if (type == nullptr) {
    value.fail("a type such as \"float32\" or \"bfloat16\"" +
               did_you_mean(text, element_type_names()));
  }
  return std::string(type->name);
}

bool same_end(const MessageFormat& a, const MessageFormat& b) {
  return a.end == b.end && a.stage == b.stage && a.micro_batch == b.micro_batch;
}

std::string text_of(const MessageFormat& format) {
  const std::string text = shape_text(format.shape);
  return (text.empty() ? "a single" : text) + " " + format.dtype;
}

/// The format of an end for a micro-batch: its own, else that for all; nullptr if there is none.
const MessageFormat* find(const std::vector<MessageFormat>& formats, const Action& end) {
  const MessageFormat* found = nullptr;
  for (const MessageFormat& format : formats) {
    if (format.end != end.kind || format.stage != end.stage) continue;
    if (format.micro_batch == end.micro_batch) return &format;
    if (!format.micro_batch) found = &format;
  }
  return found;
}

/// The SEND and the RECV of the transfer that the end belongs to.
std::pair<Action, Action> ends_of(const MessageFormat& format, MicroBatchId micro_batch) {
  const bool activation = format.end == ActionKind::SendF || format.end == ActionKind::RecvF;
  const int way = activation ? 1 : -1;
  const StageId other(format.stage.value + (is_send(format.end) ? way : -way));
  const Action send{activation ? ActionKind::SendF : ActionKind::SendB,
                    is_send(format.end) ? format.stage : other, micro_batch};
  const Action recv{activation ? ActionKind::RecvF : ActionKind::RecvB,
                    is_send(format.end) ? other : format.stage, micro_batch};
  return {send, recv};
}

}  // namespace

std::vector<std::int64_t> read_tensor_shape(const JsonCursor& shape) {
  std::vector<std::int64_t> extents;
  for (const JsonCursor& extent : shape.elements())
    extents.push_back(extent.integer(0, kMostBytes));
  if (extents.size() > kMostDimensions) shape.fail("at most 16 extents");
  return extents;
}

std::vector<MessageFormat> read_message_formats(const JsonCursor& list) {
  std::vector<MessageFormat> formats;
  for (const JsonCursor& entry : list.elements()) {
    entry.only({"end", "shape", "dtype"});
    MessageFormat format;
    read_end(entry.at("end"), format);
    format.shape = read_tensor_shape(entry.at("shape"));
    format.dtype = read_type(entry.at("dtype"));
    const bool known = std::any_of(formats.begin(), formats.end(),
                                   [&](const auto& other) { return same_end(other, format); });
    if (known) entry.at("end").fail("each end once; this one stands further up too");
    formats.push_back(std::move(format));
    if (formats.size() > kMostFormats) list.fail("at most 10,000 entries");
  }
  return formats;
}

Json to_json(const std::vector<MessageFormat>& formats) {
  Json list = Json::array();
  for (const MessageFormat& format : formats) {
    const Action action{format.end, format.stage, format.micro_batch.value_or(MicroBatchId(0))};
    std::string end = to_string(action);
    if (!format.micro_batch) end.pop_back();
    list.push_back({{"end", end}, {"shape", format.shape}, {"dtype", format.dtype}});
  }
  return list;
}

std::vector<FormatFault> format_faults(const std::vector<MessageFormat>& formats) {
  std::vector<FormatFault> faults;
  for (const MessageFormat& format : formats) {
    const auto [send, recv] = ends_of(format, format.micro_batch.value_or(MicroBatchId(0)));
    const MessageFormat* sent = find(formats, send);
    const MessageFormat* taken = find(formats, recv);
    if (sent == nullptr || taken == nullptr) continue;
    if (sent->shape == taken->shape && sent->dtype == taken->dtype) continue;
    const bool said = std::any_of(faults.begin(), faults.end(), [&send = send](const auto& fault) {
      return fault.send.kind == send.kind && fault.send.stage == send.stage &&
             fault.send.micro_batch == send.micro_batch;
    });
    if (said) continue;
    faults.push_back({send, recv,
                      to_string(send) + " sends " + text_of(*sent) + ", but " + to_string(recv) +
                          " takes " + text_of(*taken)});
  }
  return faults;
}

}  // namespace pipewright
