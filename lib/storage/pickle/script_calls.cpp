#include "storage/pickle/script_calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/pickle/pickle_names.h"

namespace dslaunch::storage {

namespace {

using Kind = PickleValue::Kind;
using Items = std::vector<const PickleValue*>;

bool has_kinds(const Items& items, std::initializer_list<Kind> kinds) {
    return items.size() >= kinds.size() &&
           std::equal(kinds.begin(), kinds.end(), items.begin(),
                      [](Kind kind, const PickleValue* item) { return item->kind == kind; });
}

bool all_are(const PickleValue& value, Kind kind) {
    return std::ranges::all_of(value.items, [&](const auto* item) { return item->kind == kind; });
}

bool is_tensor(const PickleValue& value) {
    return value.kind == Kind::kTensor || value.kind == Kind::kStorage;
}

// Returns true if ITEMS is one quantization scheme for the whole tensor, or a scheme per channel
// whose scales are tensors.
bool are_quantizer(const Items& items) {
    if (items.empty() || items[0]->kind != Kind::kGlobal) return false;
    if (items[0]->text == "torch per_tensor_affine")
        return items.size() == 3 && has_kinds(items, {Kind::kGlobal, Kind::kReal, Kind::kInteger});
    return items.size() == 4 && items[0]->text.starts_with("torch per_channel_affine") &&
           items[1]->kind == Kind::kTensor && items[2]->kind == Kind::kTensor &&
           items[3]->kind == Kind::kInteger;
}

// Returns true for a call that makes a tensor with exactly the numbers of its record. Returns false
// for conjugate and negative bits: they change the numbers, but readers of weights without LibTorch
// do not know these bits.
bool is_tensor_call(const Items& items, PickleUse use) {
    const bool quantized = use == PickleUse::kQuantized;
    if (!has_kinds(items, {Kind::kStorage, Kind::kInteger, Kind::kTuple, Kind::kTuple}) ||
        !all_are(*items[2], Kind::kInteger) || !all_are(*items[3], Kind::kInteger))
        return false;
    if (quantized)
        return items.size() == 7 && items[4]->kind == Kind::kTuple &&
               are_quantizer(items[4]->items) && items[5]->kind == Kind::kBool;
    const bool plain = items.size() == 6 || (items.size() == 7 && items[6]->kind == Kind::kDict &&
                                             items[6]->items.empty());
    return plain && items[4]->kind == Kind::kBool;
}

// Returns true if ITEMS is exactly one list, and all items that the list has so far have the type
// that NAME demands. LibTorch itself checks items that are added later.
bool is_list_of(std::string_view name, const Items& items) {
    if (items.size() != 1 || items[0]->kind != Kind::kList) return false;
    if (name.ends_with("build_tensorlist"))
        return std::ranges::all_of(items[0]->items,
                                   [](const auto* item) { return is_tensor(*item); });
    return all_are(*items[0], name.ends_with("build_intlist")      ? Kind::kInteger
                              : name.ends_with("build_doublelist") ? Kind::kReal
                                                                   : Kind::kBool);
}

// Returns true for a type that is written as a short text. LibTorch's parsers of types call
// themselves for each bracket, so the number of brackets is limited.
bool is_type(const PickleValue& value) {
    constexpr size_t kTypeBytesMax = 4096;
    constexpr auto kBracketsMax = 64;
    return value.kind == Kind::kText && value.text.size() <= kTypeBytesMax &&
           std::ranges::count(value.text, '[') <= kBracketsMax &&
           std::ranges::count(value.text, '(') <= kBracketsMax;
}

bool is_enumerator(const PickleValue& value) {
    return value.kind == Kind::kInteger || value.kind == Kind::kReal || value.kind == Kind::kText;
}

}  // namespace

ScriptCall script_call(const PickleValue& function, const PickleValue& argument) {
    const std::string_view name = function.text;
    const PickleUse use =
        function.kind == Kind::kGlobal ? use_of(name, PickleWords::kScript) : PickleUse::kNone;
    const Items& items = argument.items;
    const bool is_tuple = argument.kind == Kind::kTuple;
    switch (use) {
        case PickleUse::kTensor:
        case PickleUse::kQuantized:
            if (!is_tuple || !is_tensor_call(items, use)) break;
            return {.value = {.kind = Kind::kTensor, .items = items}};
        case PickleUse::kNothing:
            return {.value = {.kind = Kind::kNone}};
        case PickleUse::kListOf:
            if (!is_tuple || !is_list_of(name, items)) break;
            return {.same = items[0]};
        case PickleUse::kTypeTag:
            if (!is_tuple || items.size() != 2 || !is_type(*items[1]) ||
                (items[0]->kind != Kind::kList && items[0]->kind != Kind::kDict))
                break;
            return {.same = items[0]};
        case PickleUse::kComplex:
            if (!is_tuple || items.size() != 2 || !has_kinds(items, {Kind::kReal, Kind::kReal}))
                break;
            return {.value = {.kind = Kind::kRecord, .text = function.text, .items = items}};
        case PickleUse::kDevice:
            if (!is_tuple || items.size() != 1 || !has_kinds(items, {Kind::kText})) break;
            return {.value = {.kind = Kind::kRecord, .text = function.text, .items = items}};
        case PickleUse::kObject:
            return {.value = {.kind = is_enumerator(argument) ? Kind::kEnumerator : Kind::kObject,
                              .text = function.text,
                              .items = {&argument}}};
        default:
            break;
    }
    return {.fault = fmt::format("a call of {} with these arguments is not allowed",
                                 function.kind == Kind::kGlobal ? "`" + function.text + "`"
                                                                : "a value that is not a class")};
}

}  // namespace dslaunch::storage
