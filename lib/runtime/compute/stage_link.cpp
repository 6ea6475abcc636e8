#include "runtime/compute/stage_link.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <future>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/check.h"
#include "base/error.h"
#include "base/text/message.h"
#include "graph/memory/memory_order.h"

namespace dslaunch::runtime {

using c10::IValue;

namespace {

enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kDouble,
    kText,
    kTensor,
    kNoTensor,
    kTuple,
    kInts,
    kDoubles,
    kBools,
    kTensors
};

// A message's description is sent in pieces of this size. Only very many values need more than one
// piece.
constexpr size_t kPieceBytes = 4096;
// The number of tags of one message: for its description, then for its tensors.
constexpr uint32_t kTagsOfMessage = 256;

class Encoder {
  public:
    explicit Encoder(std::vector<at::Tensor>& tensors) : tensors_(tensors) {}

    std::string encode(std::span<const IValue> values) {
        writer_.u32(static_cast<uint32_t>(values.size()));
        for (const IValue& value : values) add(value);
        return writer_.bytes();
    }

  private:
    void kind(Kind kind) { writer_.u8(static_cast<uint8_t>(kind)); }
    void real(double value) { writer_.u64(std::bit_cast<uint64_t>(value)); }

    void add(const IValue& value) {
        if (value.isNone()) return kind(Kind::kNone);
        if (value.isTensor()) return add_tensor(value.toTensor());
        if (value.isBool()) {
            kind(Kind::kBool);
            writer_.u8(value.toBool() ? 1 : 0);
        } else if (value.isInt()) {
            kind(Kind::kInt);
            writer_.i64(value.toInt());
        } else if (value.isDouble()) {
            kind(Kind::kDouble);
            real(value.toDouble());
        } else if (value.isString()) {
            kind(Kind::kText);
            writer_.string(value.toStringRef());
        } else {
            add_several(value);
        }
    }

    void add_several(const IValue& value) {
        const auto add_all = [&](Kind of, const auto& elements, auto&& put) {
            kind(of);
            writer_.u32(static_cast<uint32_t>(elements.size()));
            for (const auto& element : elements) put(element);
        };
        if (value.isIntList()) {
            add_all(Kind::kInts, value.toIntVector(), [&](int64_t v) { writer_.i64(v); });
        } else if (value.isDoubleList()) {
            add_all(Kind::kDoubles, value.toDoubleVector(), [&](double v) { real(v); });
        } else if (value.isBoolList()) {
            add_all(Kind::kBools, value.toBoolList().vec(), [&](bool v) { writer_.u8(v ? 1 : 0); });
        } else if (value.isTensorList()) {
            add_all(Kind::kTensors, value.toTensorVector(),
                    [&](const at::Tensor& v) { add_tensor(v); });
        } else if (value.isTuple() && value.toTupleRef().type()->schema() == nullptr) {
            add_all(Kind::kTuple, value.toTupleRef().elements().vec(),
                    [&](const IValue& v) { add(v); });
        } else {
            fail(ExitCode::kInput,
                 "a value of type {} is used in two pipeline stages, but cannot be sent from one "
                 "process to another; use another number of stages",
                 value.type()->repr_str());
        }
    }

    // Adds a tensor. A tensor that occurs twice is sent once.
    void add_tensor(const at::Tensor& tensor) {
        if (!tensor.defined()) return kind(Kind::kNoTensor);
        kind(Kind::kTensor);
        const auto [place, fresh] = places_.try_emplace(tensor.unsafeGetTensorImpl(),
                                                        static_cast<uint32_t>(tensors_.size()));
        writer_.u32(place->second);
        if (!fresh) return;
        tensors_.push_back(graph::in_memory_order(tensor.detach()).cpu());
        writer_.u8(static_cast<uint8_t>(tensor.scalar_type())).u8(tensor.requires_grad() ? 1 : 0);
        for (const std::vector<int64_t>& numbers :
             {tensor.sizes().vec(), graph::strides_in_memory(tensor)}) {
            writer_.u32(static_cast<uint32_t>(numbers.size()));
            for (const int64_t number : numbers) writer_.i64(number);
        }
    }

    std::vector<at::Tensor>& tensors_;
    std::unordered_map<const c10::TensorImpl*, uint32_t> places_;
    WireWriter writer_;
};

class Decoder {
  public:
    Decoder(const std::string& bytes, std::vector<at::Tensor>& tensors)
        : reader_(bytes, "values between stages"), tensors_(tensors) {}

    std::vector<IValue> decode() {
        std::vector<IValue> values;
        for (uint32_t left = reader_.u32(); left > 0; --left) values.push_back(next());
        return values;
    }

  private:
    double real() { return std::bit_cast<double>(reader_.u64()); }

    IValue next() {
        switch (static_cast<Kind>(reader_.u8())) {
            case Kind::kNone:
                return {};
            case Kind::kBool:
                return reader_.u8() != 0;
            case Kind::kInt:
                return reader_.i64();
            case Kind::kDouble:
                return real();
            case Kind::kText:
                return reader_.string();
            case Kind::kTensor:
                return next_tensor();
            case Kind::kNoTensor:
                return at::Tensor();
            case Kind::kTuple:
                return c10::ivalue::Tuple::create(all<IValue>([&] { return next(); }));
            case Kind::kInts:
                return all<int64_t>([&] { return reader_.i64(); });
            case Kind::kDoubles:
                return all<double>([&] { return real(); });
            case Kind::kBools:
                return c10::List<bool>(all_bools());
            case Kind::kTensors:
                return all<at::Tensor>([&] { return next().toTensor(); });
        }
        fail(ExitCode::kDiverged,
             "a stage sent values in a form that this dsworker does not know; all hosts must run "
             "the same dsworker");
    }

    template <typename T, typename Next>
    std::vector<T> all(Next&& next) {
        std::vector<T> values;
        for (uint32_t left = reader_.u32(); left > 0; --left) values.push_back(next());
        return values;
    }

    c10::List<bool> all_bools() {
        c10::List<bool> values;
        for (uint32_t left = reader_.u32(); left > 0; --left) values.push_back(reader_.u8() != 0);
        return values;
    }

    at::Tensor next_tensor() {
        const uint32_t place = reader_.u32();
        if (place < tensors_.size()) return tensors_[place];
        const auto dtype = static_cast<at::ScalarType>(reader_.u8());
        const bool wants_gradient = reader_.u8() != 0;
        const std::vector<int64_t> shape = all<int64_t>([&] { return reader_.i64(); });
        const std::vector<int64_t> strides = all<int64_t>([&] { return reader_.i64(); });
        tensors_.push_back(strides.empty() ? at::empty(shape, dtype)
                                           : at::empty_strided(shape, strides, dtype));
        if (wants_gradient) tensors_.back().set_requires_grad(true);
        return tensors_.back();
    }

    WireReader reader_;
    std::vector<at::Tensor>& tensors_;
};

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
    return {static_cast<std::byte*>(tensor.unsafeGetTensorImpl()->mutable_data()),
            static_cast<size_t>(tensor.nbytes())};
}

void check_message(const StageMessage& came, const StageMessage& expected, int from) {
    if (came == expected) return;
    const auto text = [](const StageMessage& message) {
        return fmt::format("{} after part {} of micro step {}",
                           message.gradients ? "the gradients" : "the values", message.part,
                           message.micro_step);
    };
    fail(ExitCode::kDiverged,
         "stage {} of the pipeline sent {}, but {} were expected, so its ranks follow another "
         "schedule; model, config and dsworker must be the same on all hosts",
         from, text(came), text(expected));
}

// Sends or receives TENSORS with as few calls of TRANSFER as possible. A call can transfer one
// tensor for each tag of the message. Empty tensors are not sent.
template <typename Message, typename Transfer>
void transfer_tensors(const std::vector<at::Tensor>& tensors, int stage, uint32_t tag,
                      Transfer&& transfer) {
    std::vector<Message> messages;
    for (const at::Tensor& tensor : tensors) {
        if (tensor.nbytes() == 0) continue;
        const auto index = static_cast<uint32_t>(messages.size());
        messages.push_back({stage, tag + 1 + index, bytes_of(tensor)});
        if (messages.size() + 1 < kTagsOfMessage) continue;
        transfer(messages);
        messages.clear();
    }
    if (!messages.empty()) transfer(messages);
}

}  // namespace

std::string encode_values(std::span<const IValue> values, std::vector<at::Tensor>& tensors) {
    return Encoder(tensors).encode(values);
}

std::vector<IValue> decode_values(const std::string& bytes, std::vector<at::Tensor>& tensors) {
    return Decoder(bytes, tensors).decode();
}

void StageLink::send(int to, uint32_t number, std::span<const IValue> values,
                     const StageMessage& message) const {
    Link& link = this->to(to);
    const uint32_t tag = number * kTagsOfMessage;
    std::vector<at::Tensor> tensors;
    std::string text;
    {
        WireWriter writer;
        writer.string(encode(message)).string(encode_values(values, tensors));
        text = WireWriter().string(writer.bytes()).bytes();
    }
    text.resize((text.size() + kPieceBytes - 1) / kPieceBytes * kPieceBytes);
    // The plan counts only the bytes of values, not of their description.
    std::optional<TrafficScope> describing(TrafficKind::kControl);
    for (size_t at = 0; at < text.size(); at += kPieceBytes)
        link.transfer({{to, tag, std::as_bytes(std::span(text).subspan(at, kPieceBytes))}}, {});
    describing.reset();
    transfer_tensors<LinkSend>(
        tensors, to, tag, [&](const std::vector<LinkSend>& sends) { link.transfer(sends, {}); });
}

std::vector<IValue> StageLink::receive(int from, uint32_t number,
                                       const StageMessage& message) const {
    Link& link = to(from);
    const uint32_t tag = number * kTagsOfMessage;
    std::string text;
    const auto add_piece = [&] {
        const TrafficScope describing(TrafficKind::kControl);
        text.resize(text.size() + kPieceBytes);
        const auto piece = std::span(text).last(kPieceBytes);
        link.transfer({}, {{from, tag, std::as_writable_bytes(piece)}});
    };
    add_piece();
    const size_t length = WireReader(text, "length of values between stages").u32();
    while (text.size() < length + sizeof(uint32_t)) add_piece();
    WireReader described(std::string_view(text).substr(sizeof(uint32_t), length),
                         "message of a stage");
    check_message(decode<StageMessage>(described.string()), message, from);
    std::vector<at::Tensor> tensors;
    std::vector<IValue> values = decode_values(described.string(), tensors);
    transfer_tensors<LinkReceive>(
        tensors, from, tag,
        [&](const std::vector<LinkReceive>& receives) { link.transfer({}, receives); });
    return values;
}

void StageLink::sum(std::span<float> values, std::span<const int> stages, uint32_t number) const {
    const uint32_t tag = number * kTagsOfMessage;
    const auto numel = static_cast<int64_t>(values.size());
    const at::Tensor own = at::from_blob(values.data(), {numel}, at::kFloat);
    std::vector<at::Tensor> terms;
    for (size_t i = 0; i < stages.size(); ++i)
        terms.push_back(stages[i] == stage_ ? own : at::empty({numel}, at::kFloat));
    struct Messages {
        std::vector<LinkSend> sends;
        std::vector<LinkReceive> receives;
    };
    std::map<Link*, Messages> of_links;
    for (size_t i = 0; i < stages.size(); ++i) {
        if (stages[i] == stage_) continue;
        const std::span term(terms[i].mutable_data_ptr<float>(), values.size());
        Messages& messages = of_links[&to(stages[i])];
        messages.sends.push_back({stages[i], tag, std::as_bytes(values)});
        messages.receives.push_back({stages[i], tag, std::as_writable_bytes(term)});
    }
    // All transfers run at the same time, over all links, so that two stages never wait for each
    // other.
    const TrafficKind kind = TrafficScope::current();
    std::vector<std::future<void>> transfers;
    for (const auto& item : of_links)
        transfers.push_back(std::async(std::launch::async, [this, &item, kind] {
            const TrafficScope scope(kind);
            try {
                item.first->transfer(item.second.sends, item.second.receives);
            } catch (const std::exception& error) {
                abort(error.what());  // ends the other links too
                throw;
            }
        }));
    for (std::future<void>& transfer : transfers) transfer.get();
    at::Tensor& sum = terms.back();
    for (size_t i = terms.size() - 1; i-- > 0;) sum.add_(terms[i]);
    if (!sum.is_same(own)) own.copy_(sum);
}

}  // namespace dslaunch::runtime
