// A block file without a device: its bytes are in memory and are moved at once.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "storage/disk/block_file.h"
#include "storage/disk/request_table.h"

namespace dslaunch::test {

class MemoryBlockFile final : public storage::BlockFile {
  public:
    // The file has CAPACITY zero bytes. REQUIRES: CAPACITY is a multiple of kBlockAlignment.
    MemoryBlockFile(Bytes capacity, const storage::QueueLimits& limits)
        : bytes_(static_cast<size_t>(capacity.value)), table_({}, limits) {
        DSL_CHECK(capacity.value % storage::kBlockAlignment == 0, "capacity of {}", capacity.value);
    }

    void progress() override {}
    void register_memory(std::span<std::byte>) override {}  // no kernel needs to know
    [[nodiscard]] Bytes capacity() const override {
        return Bytes{static_cast<int64_t>(bytes_.size())};
    }
    [[nodiscard]] const std::string& path_at(int64_t) const override { return path_; }
    [[nodiscard]] storage::BlockFileFacts facts() const override {
        return {"memory", false, table_.limits().depth, table_.limits().block};
    }

  protected:
    [[nodiscard]] uint32_t start(const storage::IoRequest& request) override {
        const uint32_t entry = table_.add(request);
        while (const auto piece = table_.next()) {
            std::byte* const here = bytes_.data() + piece->file_offset_bytes;
            const auto length = static_cast<size_t>(piece->length_bytes);
            if (piece->direction == storage::IoDirection::kRead) {
                std::memcpy(piece->memory, here, length);
            } else {
                std::memcpy(here, piece->memory, length);
            }
            static_cast<void>(table_.complete(*piece, piece->length_bytes));
        }
        return entry;
    }
    [[nodiscard]] int64_t await_front(uint32_t entry, int64_t) override {
        return table_.front_bytes(entry);
    }
    storage::IoResult finish(uint32_t entry) override { return table_.take(entry); }
    void abandon(uint32_t entry) noexcept override { table_.abandon(entry); }

  private:
    std::vector<std::byte> bytes_;
    storage::RequestTable table_;
    std::string path_ = "memory";
};

}  // namespace dslaunch::test
