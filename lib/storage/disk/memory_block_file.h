// The block file without a device: its bytes live in memory. The null engine: what everything above
// costs by itself, and what plans are tried with where no disk is wanted.
#pragma once

#include <string>
#include <vector>

#include "storage/disk/block_file.h"
#include "storage/disk/request_table.h"

namespace dslaunch::storage {

class MemoryBlockFile final : public BlockFile {
  public:
    // CAPACITY zero bytes; a multiple of kBlockAlignment.
    MemoryBlockFile(Bytes capacity, const QueueLimits& limits);

    void progress() override {}
    void register_memory(std::span<std::byte>) override {}  // there is no kernel to tell
    [[nodiscard]] Bytes capacity() const override;
    [[nodiscard]] const std::string& path_at(int64_t offset_bytes) const override;
    [[nodiscard]] BlockFileFacts facts() const override;

  protected:
    // Moves the bytes at once.
    [[nodiscard]] uint32_t start(const IoRequest& request) override;
    [[nodiscard]] int64_t await_front(uint32_t entry, int64_t known_bytes) override;
    IoResult finish(uint32_t entry) override;
    void abandon(uint32_t entry) noexcept override;

  private:
    std::vector<std::byte> bytes_;
    RequestTable table_;
    std::string path_ = "memory";
};

}  // namespace dslaunch::storage
