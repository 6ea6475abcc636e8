#include "storage/parquet_plugin/row_json.h"

#include <arrow/array.h>
#include <arrow/scalar.h>
#include <arrow/type.h>
#include <arrow/type_traits.h>
#include <fmt/format.h>

#include <cmath>

namespace dslaunch::storage {
namespace {

using arrow::Array;
using arrow::Type;

template <typename ArrayType>
auto value_at(const Array& array, int64_t index) {
    return static_cast<const ArrayType&>(array).Value(index);
}

template <typename ArrayType>
std::string_view view_at(const Array& array, int64_t index) {
    return static_cast<const ArrayType&>(array).GetView(index);
}

void append_float(std::string& out, double number) {
    if (!std::isfinite(number)) throw NoJson("contains a number that is not finite");
    const std::string text = fmt::format("{}", number);
    out += text;
    if (text.find_first_of(".e") == std::string::npos) out += ".0";
}

void append_items(std::string& out, const Array& values, int64_t begin, int64_t count) {
    out += '[';
    for (int64_t i = 0; i < count; ++i) {
        if (i > 0) out += ',';
        append_json(out, values, begin + i);
    }
    out += ']';
}

template <typename ListType>
void append_list(std::string& out, const Array& array, int64_t index) {
    const auto& list = static_cast<const ListType&>(array);
    append_items(out, *list.values(), list.value_offset(index), list.value_length(index));
}

void append_member(std::string& out, std::string_view name) {
    if (out.back() != '{') out += ',';
    append_quoted(out, name);
    out += ':';
}

// Appends a struct. In a table every row has all fields, some of them null. A null is left out, as
// if the row did not have this field. Only a null `content` is written, because a message may have
// no content.
void append_struct(std::string& out, const Array& array, int64_t index) {
    const auto& row = static_cast<const arrow::StructArray&>(array);
    out += '{';
    for (int f = 0; f < row.num_fields(); ++f) {
        const std::string& name = row.struct_type()->field(f)->name();
        const Array& field = *row.field(f);
        if (is_null_at(field, index) && name != "content") continue;
        append_member(out, name);
        append_json(out, field, index);
    }
    out += '}';
}

std::string_view text_at(const Array& array, int64_t index) {
    switch (array.type_id()) {
        case Type::STRING:
        case Type::BINARY:
            return view_at<arrow::BinaryArray>(array, index);
        case Type::LARGE_STRING:
        case Type::LARGE_BINARY:
            return view_at<arrow::LargeBinaryArray>(array, index);
        case Type::STRING_VIEW:
        case Type::BINARY_VIEW:
            return view_at<arrow::BinaryViewArray>(array, index);
        default:
            throw NoJson(fmt::format("has keys of type {}, which is not supported",
                                     array.type()->ToString()));
    }
}

void append_map(std::string& out, const Array& array, int64_t index) {
    const auto& map = static_cast<const arrow::MapArray&>(array);
    out += '{';
    for (int64_t i = map.value_offset(index); i < map.value_offset(index + 1); ++i) {
        append_member(out, text_at(*map.keys(), i));
        append_json(out, *map.items(), i);
    }
    out += '}';
}

// Appends times, dates and decimals as text, because JSON has no types for them.
void append_named(std::string& out, const Array& array, int64_t index) {
    const Type::type type = array.type_id();
    if (!arrow::is_temporal(type) && !arrow::is_decimal(type))
        throw NoJson(fmt::format("contains values of type {}, which is not supported",
                                 array.type()->ToString()));
    const auto scalar = array.GetScalar(index);
    if (!scalar.ok()) throw NoJson(scalar.status().ToString());
    append_quoted(out, (*scalar)->ToString());
}

bool append_number(std::string& out, const Array& array, int64_t index) {
    switch (array.type_id()) {
        case Type::INT8:
            out += std::to_string(value_at<arrow::Int8Array>(array, index));
            return true;
        case Type::INT16:
            out += std::to_string(value_at<arrow::Int16Array>(array, index));
            return true;
        case Type::INT32:
            out += std::to_string(value_at<arrow::Int32Array>(array, index));
            return true;
        case Type::INT64:
            out += std::to_string(value_at<arrow::Int64Array>(array, index));
            return true;
        case Type::UINT8:
            out += std::to_string(value_at<arrow::UInt8Array>(array, index));
            return true;
        case Type::UINT16:
            out += std::to_string(value_at<arrow::UInt16Array>(array, index));
            return true;
        case Type::UINT32:
            out += std::to_string(value_at<arrow::UInt32Array>(array, index));
            return true;
        case Type::UINT64:
            out += std::to_string(value_at<arrow::UInt64Array>(array, index));
            return true;
        case Type::FLOAT:
            append_float(out, value_at<arrow::FloatArray>(array, index));
            return true;
        case Type::DOUBLE:
            append_float(out, value_at<arrow::DoubleArray>(array, index));
            return true;
        default:
            return false;
    }
}

}  // namespace

bool is_null_at(const Array& array, int64_t index) {
    if (array.IsNull(index)) return true;
    if (array.type_id() != Type::DICTIONARY) return false;
    const auto& of_words = static_cast<const arrow::DictionaryArray&>(array);
    return of_words.dictionary()->IsNull(of_words.GetValueIndex(index));
}

void append_quoted(std::string& out, std::string_view text) {
    out += '"';
    size_t plain = 0;  // the beginning of the text that is not yet written
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\') continue;
        out += text.substr(plain, i - plain);
        if (c == '"' || c == '\\') {
            (out += '\\') += c;
        } else {
            out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        }
        plain = i + 1;
    }
    out += text.substr(plain);
    out += '"';
}

void append_json(std::string& out, const Array& array, int64_t index) {
    if (is_null_at(array, index)) {
        out += "null";
        return;
    }
    switch (array.type_id()) {
        case Type::BOOL:
            out += value_at<arrow::BooleanArray>(array, index) ? "true" : "false";
            return;
        case Type::STRING:
        case Type::BINARY:
        case Type::LARGE_STRING:
        case Type::LARGE_BINARY:
        case Type::STRING_VIEW:
        case Type::BINARY_VIEW:
            return append_quoted(out, text_at(array, index));
        case Type::LIST:
            return append_list<arrow::ListArray>(out, array, index);
        case Type::LARGE_LIST:
            return append_list<arrow::LargeListArray>(out, array, index);
        case Type::FIXED_SIZE_LIST:
            return append_list<arrow::FixedSizeListArray>(out, array, index);
        case Type::STRUCT:
            return append_struct(out, array, index);
        case Type::MAP:
            return append_map(out, array, index);
        case Type::DICTIONARY: {
            const auto& of_words = static_cast<const arrow::DictionaryArray&>(array);
            return append_json(out, *of_words.dictionary(), of_words.GetValueIndex(index));
        }
        case Type::EXTENSION:
            return append_json(out, *static_cast<const arrow::ExtensionArray&>(array).storage(),
                               index);
        default:
            if (!append_number(out, array, index)) append_named(out, array, index);
    }
}

}  // namespace dslaunch::storage
