#include "storage/disk/memory_block_file.h"

#include <cstring>

#include "base/check.h"

namespace dslaunch::storage {

MemoryBlockFile::MemoryBlockFile(Bytes capacity, const QueueLimits& limits)
    : bytes_(static_cast<size_t>(capacity.value)), table_({}, limits) {
    DSL_CHECK(capacity.value % kBlockAlignment == 0, "capacity of {}", capacity.value);
}

Bytes MemoryBlockFile::capacity() const {
    return Bytes{static_cast<int64_t>(bytes_.size())};
}

const std::string& MemoryBlockFile::path_at(int64_t) const {
    return path_;
}

BlockFileFacts MemoryBlockFile::facts() const {
    return {"memory", false, table_.limits().depth, table_.limits().block};
}

uint32_t MemoryBlockFile::start(const IoRequest& request) {
    const uint32_t entry = table_.add(request);
    while (const auto piece = table_.next()) {
        std::byte* const here = bytes_.data() + piece->file_offset_bytes;
        const auto length = static_cast<size_t>(piece->length_bytes);
        if (piece->direction == IoDirection::kRead) {
            std::memcpy(piece->memory, here, length);
        } else {
            std::memcpy(here, piece->memory, length);
        }
        static_cast<void>(table_.complete(*piece, piece->length_bytes));
    }
    return entry;
}

int64_t MemoryBlockFile::await_front(uint32_t entry, int64_t) {
    return table_.front_bytes(entry);
}

IoResult MemoryBlockFile::finish(uint32_t entry) {
    return table_.take(entry);
}

void MemoryBlockFile::abandon(uint32_t entry) noexcept {
    table_.abandon(entry);
}

}  // namespace dslaunch::storage
