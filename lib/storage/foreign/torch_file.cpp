#include "storage/foreign/torch_file.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text_bytes.h"

namespace dslaunch::storage {
namespace {

using Kind = PickleValue::Kind;

std::optional<DType> storage_dtype(std::string_view name) {
    static constexpr std::array<std::pair<std::string_view, DType>, 11> kStorages = {
        {{"torch FloatStorage", DType::kF32},
         {"torch BFloat16Storage", DType::kBF16},
         {"torch HalfStorage", DType::kF16},
         {"torch DoubleStorage", DType::kF64},
         {"torch LongStorage", DType::kI64},
         {"torch IntStorage", DType::kI32},
         {"torch ShortStorage", DType::kI16},
         {"torch CharStorage", DType::kI8},
         {"torch ByteStorage", DType::kU8},
         {"torch BoolStorage", DType::kBool},
         {"torch ComplexFloatStorage", DType::kC64}}};
    for (const auto& [storage, dtype] : kStorages)
        if (storage == name) return dtype;
    return std::nullopt;
}

ZipArchive open_archive(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (file.get() == 0x80)
        fail(ExitCode::kInput,
             "{}: was written by torch.save in its old format, a plain pickle. Convert it to an "
             "archive in Python: torch.save(torch.load(OLD), NEW)",
             path);
    return ZipArchive(path);
}

std::span<const std::byte> record(const ZipArchive& archive, const std::string& name) {
    const ZipRecord* found = archive.find(name);
    if (found == nullptr)
        fail(ExitCode::kInput, "{}: the archive has no record {}", archive.path(), name);
    return archive.content(*found);
}

Pickle read_pickle(const ZipArchive& archive) {
    if (const ZipRecord* order = archive.find("byteorder")) {
        const auto bytes = archive.content(*order);
        const std::string_view text = text_in(bytes);
        if (text != "little")
            fail(ExitCode::kInput, "{}: was written with byte order `{}`, expected `little`",
                 archive.path(), printable(text));
    }
    return {archive.path(), record(archive, "data.pkl")};
}

// Returns the numbers of a tuple; nothing if one is negative or not an integer.
std::optional<std::vector<int64_t>> sizes_of(const PickleValue& tuple) {
    std::vector<int64_t> sizes;
    for (const PickleValue* item : tuple.items) {
        if (item->kind != Kind::kInteger || item->integer < 0) return std::nullopt;
        sizes.push_back(item->integer);
    }
    return sizes;
}

}  // namespace

TorchFile::TorchFile(const std::string& path)
    : archive_(open_archive(path)), pickle_(read_pickle(archive_)) {}

TorchTensor TorchFile::tensor(const PickleValue* value, const std::string& what) const {
    const auto bad = [&](std::string_view why) {
        fail(ExitCode::kInput, "{}: {}: {}", path(), printable(what), why);
    };
    if (value == nullptr || value->kind != Kind::kTensor) bad("is missing or not a tensor");
    const PickleValue& storage = *value->items[0];
    TorchTensor tensor;
    const auto dtype = storage_dtype(storage.text);
    const auto shape = sizes_of(*value->items[2]), strides = sizes_of(*value->items[3]);
    if (!dtype || !shape || !strides || shape->size() != strides->size())
        bad("its dtype, shape or strides are not valid");
    tensor.dtype = *dtype;
    tensor.shape = *shape;
    tensor.storage = storage.items[0]->text;
    const auto stored = record(archive_, fmt::format("data/{}", tensor.storage));
    const int64_t stored_numel = std::ssize(stored) / dtype_bytes(tensor.dtype);
    if (storage.items[2]->integer != stored_numel ||
        std::ssize(stored) % dtype_bytes(tensor.dtype) != 0)
        bad("its storage does not have the length in the pickle: the file is damaged");
    const bool is_empty = std::ranges::count(*shape, 0) > 0;
    int64_t numel = is_empty ? 0 : 1;
    for (size_t i = shape->size(); !is_empty && i-- > 0;) {
        if ((*shape)[i] > 1 && (*strides)[i] != numel) bad("it is not contiguous");
        if (numel > stored_numel / (*shape)[i]) bad("it reaches beyond its storage");
        numel *= (*shape)[i];
    }
    const int64_t begin = value->items[1]->integer;
    if (begin < 0 || begin > stored_numel || numel > stored_numel - begin)
        bad("it reaches beyond its storage");
    tensor.begin = begin;
    tensor.storage_numel = stored_numel;
    tensor.bytes = stored.subspan(static_cast<size_t>(begin * dtype_bytes(tensor.dtype)),
                                  static_cast<size_t>(numel * dtype_bytes(tensor.dtype)));
    return tensor;
}

}  // namespace dslaunch::storage
