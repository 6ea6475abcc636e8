#include "storage/scripted/script_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "storage/pickle/pickle_names.h"

namespace dslaunch::storage {

namespace {

using Kind = PickleValue::Kind;

class TensorCheck {
  public:
    TensorCheck(const std::string& where, const RecordBytes& record_bytes)
        : where_(where), record_bytes_(record_bytes) {}

    void check(const PickleValue& value) {
        if (value.kind == Kind::kStorage) check_storage(value);
        if (value.kind == Kind::kTensor) check_tensor(value);
    }

    [[nodiscard]] int64_t bytes() const { return bytes_; }

  private:
    template <typename... Args>
    [[noreturn]] void bad(const PickleValue& storage, fmt::format_string<Args...> format,
                          Args&&... args) const {
        fail(ExitCode::kInput, "{}: storage {}: {}; the archive is damaged", where_,
             printable(storage.items[0]->text), fmt::format(format, std::forward<Args>(args)...));
    }

    void add(int64_t bytes) {
        if (__builtin_add_overflow(bytes_, bytes, &bytes_)) bytes_ = INT64_MAX;
    }

    int64_t element_bytes(const PickleValue& storage) const {
        const std::optional<int64_t> bytes = storage_element_bytes(storage.text);
        if (!bytes) bad(storage, "its type `{}` is unknown", printable(storage.text));
        return *bytes;
    }

    // Checks a storage against its record, and returns its number of elements.
    int64_t check_storage(const PickleValue& storage) {
        const int64_t numel = storage.items[2]->integer, element = element_bytes(storage);
        if (numel < 0) bad(storage, "it has {} elements, which is impossible", numel);
        if (numel == 0) return 0;
        const std::optional<int64_t> record = record_bytes_(storage.items[0]->text);
        if (!record) bad(storage, "its record is missing");
        if (numel > *record / element)
            bad(storage, "it has {} elements of {} bytes, but its record has only {} bytes", numel,
                element, *record);
        add(numel * element);
        return numel;
    }

    void check_tensor(const PickleValue& tensor) {
        const PickleValue& storage = *tensor.items[0];
        const int64_t numel = storage.items[2]->integer, element = element_bytes(storage);
        const std::vector<int64_t> sizes = numbers(*tensor.items[2]);
        const std::vector<int64_t> strides = numbers(*tensor.items[3]);
        const int64_t offset = tensor.items[1]->integer;
        const std::optional<TensorExtent> extent = tensor_extent(offset, sizes, strides);
        if (!extent)
            bad(storage, "a tensor has impossible sizes [{}], strides [{}] and offset {}",
                shown(sizes), shown(strides), offset);
        if (extent->reach > numel)
            bad(storage,
                "a tensor with sizes [{}], strides [{}] and offset {} needs {} elements, but the "
                "storage has {}",
                shown(sizes), shown(strides), offset, extent->reach, numel);
        add(extent->numel * element);
        if (tensor.items[4]->kind == Kind::kTuple) check_channels(storage, tensor, sizes);
    }

    // Checks that a quantized tensor has a scale and a zero point for each channel.
    void check_channels(const PickleValue& storage, const PickleValue& tensor,
                        const std::vector<int64_t>& sizes) const {
        const auto& scheme = tensor.items[4]->items;
        if (scheme.size() != 4) return;
        const int64_t axis = scheme[3]->integer;
        if (axis < 0 || axis >= std::ssize(sizes))
            bad(storage, "a quantized tensor has scales for dimension {}, which does not exist",
                axis);
        for (const PickleValue* of_channels : {scheme[1], scheme[2]}) {
            const std::vector<int64_t> count = numbers(*of_channels->items[2]);
            if (count.size() != 1 || count[0] != sizes[static_cast<size_t>(axis)])
                bad(storage, "a quantized tensor has scales for [{}] channels, expected {}",
                    shown(count), sizes[static_cast<size_t>(axis)]);
        }
    }

    static std::string shown(std::span<const int64_t> numbers) {
        constexpr size_t kShownMax = 8;
        const bool all = numbers.size() <= kShownMax;
        return fmt::format("{}{}",
                           fmt::join(numbers.first(std::min(numbers.size(), kShownMax)), ", "),
                           all ? "" : ", …");
    }

    static std::vector<int64_t> numbers(const PickleValue& tuple) {
        std::vector<int64_t> values;
        for (const PickleValue* item : tuple.items) values.push_back(item->integer);
        return values;
    }

    const std::string& where_;
    const RecordBytes& record_bytes_;
    int64_t bytes_ = 0;
};

}  // namespace

int64_t check_script_tensors(const std::string& where, const Pickle& pickle,
                             const RecordBytes& record_bytes) {
    TensorCheck check(where, record_bytes);
    for (const PickleValue& value : pickle.values()) check.check(value);
    return check.bytes();
}

namespace {

// The largest number of elements. With 16 bytes each, their size in bytes still fits an int64.
constexpr int64_t kElementsMax = int64_t{1} << 56;

bool is_countable(int64_t number) {
    return number >= 0 && number < kElementsMax;
}

}  // namespace

std::optional<TensorExtent> tensor_extent(int64_t offset, std::span<const int64_t> sizes,
                                          std::span<const int64_t> strides) {
    if (sizes.size() != strides.size() || std::ssize(sizes) > kTensorDimsMax ||
        !is_countable(offset) || !std::ranges::all_of(sizes, is_countable) ||
        !std::ranges::all_of(strides, is_countable))
        return std::nullopt;
    if (std::ranges::count(sizes, 0) > 0) return TensorExtent{offset, 0};
    TensorExtent extent{offset, 1};
    for (size_t d = 0; d < sizes.size(); ++d) {
        int64_t step = 0;
        if (__builtin_mul_overflow(strides[d], sizes[d] - 1, &step) ||
            __builtin_add_overflow(extent.reach, step, &extent.reach) ||
            __builtin_mul_overflow(extent.numel, sizes[d], &extent.numel) ||
            !is_countable(extent.reach) || !is_countable(extent.numel))
            return std::nullopt;
    }
    ++extent.reach;
    return extent;
}

}  // namespace dslaunch::storage
