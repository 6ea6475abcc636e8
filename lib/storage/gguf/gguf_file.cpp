#include "storage/gguf/gguf_file.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text_bytes.h"
#include "storage/files/file_kind.h"

namespace dslaunch::storage {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersion = 3;
constexpr int64_t kAlignment = 32;
constexpr uint64_t kAlignmentMax = 1 << 16;
constexpr uint64_t kKeyBytesMax = 65535;
constexpr uint64_t kTensorNameBytesMax = 255;
constexpr uint32_t kDimensionsMax = 4;
constexpr std::string_view kAlignmentKey = "general.alignment";
// The smallest sizes of entries: a value has a key, a type and one byte; a tensor has a name, the
// number of its dimensions, a form and a place.
constexpr uint64_t kValueBytesMin = 8 + 4 + 1;
constexpr uint64_t kTensorBytesMin = 8 + 4 + 4 + 8;

// Reads the header of a file from its beginning. Each function throws Error{kInput} if the file
// ends before the value that it reads.
class Reader {
  public:
    Reader(const std::string& path, std::span<const std::byte> all) : path_(path), all_(all) {}

    template <typename T>
    T number() {
        T number{};
        std::memcpy(&number, take(sizeof number).data(), sizeof number);
        return number;
    }

    std::span<const std::byte> take(uint64_t bytes) {
        if (bytes > left())
            fail(ExitCode::kInput,
                 "{}: {} bytes are expected at byte {}, but the file ends after {}: it is "
                 "truncated; download or copy it again",
                 printable(path_), bytes, at_, all_.size());
        const auto part = all_.subspan(at_, static_cast<size_t>(bytes));
        at_ += static_cast<size_t>(bytes);
        return part;
    }

    std::string text(uint64_t most, const char* what) {
        const auto length = number<uint64_t>();
        if (length > most)
            fail(ExitCode::kInput, "{}: {} at byte {} has {} bytes, but at most {} are possible",
                 printable(path_), what, at_, length, most);
        return std::string(text_in(take(length)));
    }

    // Reads how many elements of the kind WHAT follow in the file. Checks that the file has room
    // for them if each takes at least LEAST bytes.
    uint64_t number_of(const char* what, uint64_t least) {
        const auto count = number<uint64_t>();
        if (count > left() / least)
            fail(ExitCode::kInput,
                 "{}: {} {} do not fit in the {} bytes of the file: it is truncated or damaged; "
                 "download or copy it again",
                 printable(path_), count, what, all_.size());
        return count;
    }

    [[nodiscard]] uint64_t left() const { return all_.size() - at_; }
    [[nodiscard]] size_t at() const { return at_; }

  private:
    const std::string& path_;
    std::span<const std::byte> all_;
    size_t at_ = 0;
};

bool is_type(uint32_t number) {
    return number <= static_cast<uint32_t>(GgufType::kF64);
}

GgufValue read_value(const std::string& path, const std::string& key, Reader& reader) {
    const auto refuse = [&](const std::string& why) {
        fail(ExitCode::kInput, "{}: the value `{}` {}", printable(path), printable(key), why);
    };
    const auto type = reader.number<uint32_t>();
    if (!is_type(type)) refuse(fmt::format("has the unknown type {}", type));
    GgufValue value{static_cast<GgufType>(type), {}, 1, {}};
    if (value.type == GgufType::kText) {
        value.bytes = reader.take(reader.number<uint64_t>());
        return value;
    }
    if (value.type != GgufType::kList) {
        value.bytes = reader.take(static_cast<uint64_t>(gguf_type_bytes(value.type)));
        return value;
    }
    const auto element = reader.number<uint32_t>();
    if (!is_type(element)) refuse(fmt::format("is a list of the unknown type {}", element));
    value.element = static_cast<GgufType>(element);
    if (value.element == GgufType::kList) refuse("is a list of lists, which is not supported");
    const auto bytes = static_cast<uint64_t>(gguf_type_bytes(value.element));
    const uint64_t count = reader.number_of("elements of a list", bytes == 0 ? 8 : bytes);
    value.count = static_cast<int64_t>(count);
    if (bytes > 0) {
        value.bytes = reader.take(count * bytes);
        return value;
    }
    Reader before = reader;
    for (uint64_t i = 0; i < count; ++i) static_cast<void>(reader.take(reader.number<uint64_t>()));
    value.bytes = before.take(reader.at() - before.at());
    return value;
}

int64_t alignment_of(const GgufMetadata& metadata) {
    if (!metadata.has(kAlignmentKey)) return kAlignment;
    const int64_t alignment = metadata.integer(kAlignmentKey);
    const auto number = static_cast<uint64_t>(alignment);
    if (alignment < 8 || number > kAlignmentMax || (number & (number - 1)) != 0)
        metadata.refuse(kAlignmentKey, "is not a power of two from 8 to 65536");
    return alignment;
}

// A tensor whose bytes are not known yet.
struct Placed {
    GgufTensor tensor;
    uint64_t begin = 0;  // offset in the data part of the file
    int64_t bytes = 0;
};

Placed read_tensor(const std::string& path, Reader& reader) {
    Placed placed;
    GgufTensor& tensor = placed.tensor;
    tensor.name = reader.text(kTensorNameBytesMax, "the name of a tensor");
    const auto refuse = [&](const std::string& why) {
        fail(ExitCode::kInput, "{}: tensor `{}`: {}", printable(path), printable(tensor.name), why);
    };
    const auto dimensions = reader.number<uint32_t>();
    if (dimensions > kDimensionsMax)
        refuse(
            fmt::format("{} dimensions, but at most {} are possible", dimensions, kDimensionsMax));
    int64_t numel = 1;
    for (uint32_t i = 0; i < dimensions; ++i) {
        const auto extent = reader.number<uint64_t>();
        if (extent == 0 || extent > INT64_MAX ||
            __builtin_mul_overflow(numel, static_cast<int64_t>(extent), &numel))
            refuse("its shape is empty or too large");
        tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(extent));
    }
    const auto number = reader.number<uint32_t>();
    const std::optional<GgufForm> form = gguf_form_of(number);
    if (!form)
        refuse(
            fmt::format("its numbers have the form {} ({}), which is not supported; use the "
                        "model in one of F32, F16, BF16, F64, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, "
                        "Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS",
                        gguf_form_name(number), number));
    tensor.form = *form;
    const GgufFormFacts& facts = facts_of(*form);
    const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (row % facts.numel != 0)
        refuse(
            fmt::format("rows of {} elements are not a whole number of blocks of {} elements ({})",
                        row, facts.numel, facts.name));
    if (__builtin_mul_overflow(numel / facts.numel, facts.bytes, &placed.bytes))
        refuse("its shape is too large");
    placed.begin = reader.number<uint64_t>();
    return placed;
}

void check_no_overlap(const std::string& path, const std::vector<GgufTensor>& tensors) {
    std::vector<const GgufTensor*> sorted;
    for (const GgufTensor& tensor : tensors) sorted.push_back(&tensor);
    std::ranges::sort(sorted, {}, [](const GgufTensor* one) { return one->bytes.data(); });
    for (size_t i = 1; i < sorted.size(); ++i)
        if (sorted[i - 1]->bytes.data() + sorted[i - 1]->bytes.size() > sorted[i]->bytes.data())
            fail(ExitCode::kInput, "{}: the bytes of tensors `{}` and `{}` overlap",
                 printable(path), printable(sorted[i - 1]->name), printable(sorted[i]->name));
}

void check_beginning(const std::string& path, std::span<const std::byte> all) {
    if (text_in(all).starts_with(kMagic)) return;
    if (const std::string fault = download_fault(text_in(all)); !fault.empty())
        fail(ExitCode::kInput, "{}: {}", printable(path), fault);
    fail(ExitCode::kInput, "{}: is {}, not a GGUF file", printable(path),
         file_kind_name(file_kind(all)));
}

}  // namespace

GgufContent parse_gguf(const std::string& path, std::span<const std::byte> all) {
    check_beginning(path, all);
    Reader reader(path, all);
    static_cast<void>(reader.take(kMagic.size()));
    const auto version = reader.number<uint32_t>();
    if (version == __builtin_bswap32(kVersion) || version == __builtin_bswap32(2))
        fail(ExitCode::kInput, "{}: is a big-endian GGUF file, which is not supported",
             printable(path));
    if (version != 2 && version != kVersion)
        fail(ExitCode::kInput, "{}: is a GGUF file of version {}; supported are 2 and 3",
             printable(path), version);
    const uint64_t tensors = reader.number_of("tensors", kTensorBytesMin);
    const uint64_t values = reader.number_of("values", kValueBytesMin);
    GgufContent content{GgufMetadata(path), {}};
    for (uint64_t i = 0; i < values; ++i) {
        std::string key = reader.text(kKeyBytesMax, "a key");
        const GgufValue value = read_value(path, key, reader);
        if (!content.metadata.add(key, value))
            fail(ExitCode::kInput, "{}: the key `{}` is there twice", printable(path),
                 printable(key));
    }
    const int64_t alignment = alignment_of(content.metadata);
    std::vector<Placed> placed;
    std::set<std::string, std::less<>> names;
    for (uint64_t i = 0; i < tensors; ++i) {
        placed.push_back(read_tensor(path, reader));
        if (!names.insert(placed.back().tensor.name).second)
            fail(ExitCode::kInput, "{}: the tensor `{}` is there twice", printable(path),
                 printable(placed.back().tensor.name));
    }
    const auto begin = std::min(
        all.size(), static_cast<size_t>(round_up(static_cast<int64_t>(reader.at()), alignment)));
    const auto data = all.subspan(begin);
    for (Placed& one : placed) {
        if (one.begin % static_cast<uint64_t>(alignment) != 0)
            fail(ExitCode::kInput, "{}: tensor `{}` begins at byte {}, which is not aligned to {}",
                 printable(path), printable(one.tensor.name), one.begin, alignment);
        const auto bytes = static_cast<uint64_t>(one.bytes);
        if (one.begin > data.size() || bytes > data.size() - one.begin)
            fail(ExitCode::kInput,
                 "{}: tensor `{}` has {} bytes at byte {}, but the file has only {} bytes of data: "
                 "it is truncated; download or copy it again",
                 printable(path), printable(one.tensor.name), bytes, one.begin, data.size());
        one.tensor.bytes = data.subspan(static_cast<size_t>(one.begin), static_cast<size_t>(bytes));
        content.tensors.push_back(std::move(one.tensor));
    }
    check_no_overlap(path, content.tensors);
    return content;
}

bool is_gguf_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    char begin[4] = {};
    in.read(begin, sizeof begin);
    return in.gcount() == sizeof begin && std::string_view(begin, sizeof begin) == kMagic;
}

GgufFile::GgufFile(const std::string& path)
    : file_(path), content_(parse_gguf(path, file_.bytes())) {}

const GgufTensor* GgufContent::find(std::string_view name) const {
    const auto found = std::ranges::find(tensors, name, &GgufTensor::name);
    return found == tensors.end() ? nullptr : &*found;
}

GgufWriter::Layout GgufWriter::layout_of(const GgufValues& values,
                                         std::span<const GgufTensor> tensors) {
    Layout layout;
    std::string& header = layout.header;
    const auto add = [&](auto number) {
        header.append(reinterpret_cast<const char*>(&number), sizeof number);
    };
    header += kMagic;
    add(kVersion);
    add(static_cast<uint64_t>(tensors.size()));
    add(static_cast<uint64_t>(values.count()));
    header += values.bytes();
    int64_t end = 0;
    std::set<std::string_view> names;
    for (const GgufTensor& tensor : tensors) {
        DSL_CHECK(names.insert(tensor.name).second, "tensor {} appears twice", tensor.name);
        DSL_CHECK(tensor.shape.size() <= kDimensionsMax, "tensor {}: too many dimensions",
                  tensor.name);
        add(static_cast<uint64_t>(tensor.name.size()));
        header += tensor.name;
        add(static_cast<uint32_t>(tensor.shape.size()));
        int64_t numel = 1;
        for (size_t i = tensor.shape.size(); i-- > 0;) {
            add(static_cast<uint64_t>(tensor.shape[i]));
            numel *= tensor.shape[i];
        }
        DSL_CHECK(tensor.shape.empty() || tensor.shape.back() % facts_of(tensor.form).numel == 0,
                  "tensor {}: a row is not a whole number of blocks", tensor.name);
        add(static_cast<uint32_t>(tensor.form));
        add(static_cast<uint64_t>(end));
        layout.bytes.push_back(gguf_bytes(tensor.form, numel));
        end = round_up(end + layout.bytes.back(), kAlignment);
    }
    header.resize(static_cast<size_t>(round_up(std::ssize(header), kAlignment)), '\0');
    layout.file_bytes = std::ssize(header) + end;
    return layout;
}

GgufWriter::GgufWriter(const std::string& path, const GgufValues& values,
                       std::span<const GgufTensor> tensors)
    : layout_(layout_of(values, tensors)), file_(path, Bytes{layout_.file_bytes}) {
    file_.write(layout_.header);
}

void GgufWriter::append(std::span<const std::byte> bytes) {
    DSL_CHECK(
        index_ < layout_.bytes.size() && std::ssize(bytes) <= layout_.bytes[index_] - written_,
        "{} bytes do not fit in tensor {}", bytes.size(), index_);
    file_.write(bytes);
    written_ += std::ssize(bytes);
    if (written_ < layout_.bytes[index_]) return;
    file_.write(std::string(static_cast<size_t>(round_up(written_, kAlignment) - written_), '\0'));
    ++index_;
    written_ = 0;
}

void GgufWriter::commit() {
    DSL_CHECK(index_ == layout_.bytes.size(), "tensor {} is not complete", index_);
    file_.commit();
}

}  // namespace dslaunch::storage
