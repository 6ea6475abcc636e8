#include "storage/foreign/deepspeed_parts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "storage/export/floats.h"

namespace dslaunch::storage {
namespace {

using Kind = PickleValue::Kind;
using Span = std::span<const std::byte>;

constexpr int64_t kComparedNumel = 64;                 // elements compared at each end of a chunk
constexpr int64_t kComparedValues = int64_t{1} << 20;  // limit, since shared values repeat

Span elements_of(Span bytes, Range elements, int64_t width) {
    return bytes.subspan(static_cast<size_t>(elements.begin * width),
                         static_cast<size_t>(elements.numel * width));
}

bool equal_numbers(Span masters, Span rounded, DType dtype) {
    std::vector<double> wanted, found;
    std::vector<std::byte> narrow;
    to_doubles(masters, DType::kF32, wanted);
    static_cast<void>(from_doubles(wanted, dtype, narrow));
    to_doubles(narrow, dtype, wanted);
    to_doubles(rounded, dtype, found);
    return std::ranges::equal(wanted, found, [](double a, double b) {
        return a == b || (std::isnan(a) && std::isnan(b));
    });
}

bool has_same_values(const PickleValue& a, const PickleValue& b, int64_t& left) {
    if (--left < 0) return false;
    if (a.kind != b.kind) return false;
    if (a.kind == Kind::kTensor || a.kind == Kind::kStorage) return true;
    if (a.kind == Kind::kReal && a.real != b.real && !(std::isnan(a.real) && std::isnan(b.real)))
        return false;
    return a.integer == b.integer && a.text == b.text &&
           std::ranges::equal(a.items, b.items, [&](const PickleValue* x, const PickleValue* y) {
               return has_same_values(*x, *y, left);
           });
}

}  // namespace

int64_t integer_or(const PickleValue* value, int64_t otherwise) {
    return value != nullptr && value->kind == Kind::kInteger ? value->integer : otherwise;
}

std::optional<int64_t> zero_stage_in(const PickleValue& state) {
    const PickleValue* stage = state.find("zero_stage");
    if (stage == nullptr) return std::nullopt;
    // The value is ZeroStageEnum(2), or a plain integer in older versions.
    if (stage->kind == Kind::kRecord && !stage->items[0]->items.empty())
        stage = stage->items[0]->items[0];
    return integer_or(stage, -1);
}

const PickleValue& need(const TorchFile& file, const PickleValue& dict, const char* key) {
    const PickleValue* value = dict.find(key);
    if (value == nullptr) refuse(file.path(), "has no `{}`", key);
    return *value;
}

Chunks slice(const Chunks& chunks, Range elements, int64_t width) {
    Chunks found;
    Range here{0, 0};
    for (const Span& chunk : chunks) {
        here = {here.end(), std::ssize(chunk) / width};
        const Range part = intersect(here, elements);
        if (part.numel > 0)
            found.push_back(elements_of(chunk, {part.begin - here.begin, part.numel}, width));
    }
    return found;
}

int64_t numel_of(const Chunks& chunks) {
    int64_t bytes = 0;
    for (const Span& chunk : chunks) bytes += std::ssize(chunk);
    return bytes / kMasterBytes;
}

std::optional<std::vector<int64_t>> shape_of(const PickleValue& value) {
    if (value.kind != Kind::kTuple) return std::nullopt;
    std::vector<int64_t> shape;
    int64_t numel = 1;
    for (const PickleValue* item : value.items) {
        if (item->kind != Kind::kInteger || item->integer < 0) return std::nullopt;
        if (item->integer > 0 && numel > (int64_t{1} << 48) / item->integer) return std::nullopt;
        numel *= item->integer;
        shape.push_back(item->integer);
    }
    return shape;
}

int64_t numel_of(const std::vector<int64_t>& shape) {
    int64_t numel = 1;
    for (const int64_t size : shape) numel *= size;
    return numel;
}

int64_t updates_of(const TorchFile& file, const PickleValue* step) {
    if (step == nullptr || step->kind != Kind::kTensor) return integer_or(step, 0);
    const TorchTensor tensor = file.tensor(step, "step");
    float value = 0;
    if (tensor.dtype != DType::kF32 || tensor.numel() != 1)
        refuse(file.path(), "an optimizer's step is not a single fp32 number");
    std::memcpy(&value, tensor.bytes.data(), sizeof value);
    if (!(value >= 0 && value < 0x1p24f))
        refuse(file.path(), "an optimizer's step is {}, which is impossible", value);
    return std::lround(value);
}

bool rounds_to(const Chunks& masters, const TorchTensor& tensor) {
    if (!is_floating(tensor.dtype) || numel_of(masters) != tensor.numel()) return false;
    const int64_t width = dtype_bytes(tensor.dtype);
    int64_t at = 0;
    for (const Span& chunk : masters) {
        const int64_t numel = std::ssize(chunk) / kMasterBytes;
        const int64_t part = std::min(numel, kComparedNumel);
        for (const int64_t begin : {int64_t{0}, numel - part})
            if (!equal_numbers(elements_of(chunk, {begin, part}, kMasterBytes),
                               elements_of(tensor.bytes, {at + begin, part}, width), tensor.dtype))
                return false;
        at += numel;
    }
    return true;
}

bool has_same_values(const PickleValue& a, const PickleValue& b) {
    int64_t left = kComparedValues;
    return has_same_values(a, b, left);
}

}  // namespace dslaunch::storage
