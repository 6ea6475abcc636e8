// The block file by io_uring: registered files and memory, one system call for many pieces, driven
// by completions in the owner's thread.
#pragma once

#include <liburing.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "storage/disk/backing_files.h"
#include "storage/disk/block_file.h"
#include "storage/disk/request_table.h"

namespace dslaunch::storage {

class UringBlockFile final : public BlockFile {
  public:
    static constexpr int kDepthMax = 4096;

    // FILES must outlive this object. ERROR_NUMBER gets the negative errno and the result is null
    // where this machine has or allows no io_uring.
    [[nodiscard]] static std::unique_ptr<UringBlockFile> open(const BackingFiles& files,
                                                              const QueueLimits& limits,
                                                              int& error_number);
    ~UringBlockFile() override;

    void progress() override;
    void register_memory(std::span<std::byte> arena) override;
    [[nodiscard]] Bytes capacity() const override { return files_.capacity; }
    [[nodiscard]] const std::string& path_at(int64_t offset_bytes) const override {
        return files_.path_at(offset_bytes);
    }
    [[nodiscard]] BlockFileFacts facts() const override;

  protected:
    [[nodiscard]] uint32_t start(const IoRequest& request) override;
    [[nodiscard]] int64_t await_front(uint32_t entry, int64_t known_bytes) override;
    IoResult finish(uint32_t entry) override;
    void abandon(uint32_t entry) noexcept override;

  private:
    UringBlockFile(const BackingFiles& files, const QueueLimits& limits);
    [[nodiscard]] int set_up();  // 0 or negative errno
    void own();
    void fill();
    void queue(uint32_t index);
    void reap();
    void wait_for_one();
    [[nodiscard]] int buffer_of(const Piece& piece) const;  // -1: not registered

    const BackingFiles& files_;
    RequestTable table_;
    io_uring ring_{};
    bool ring_is_set_up_ = false;
    bool disabled_ = false;  // true until the owner enables the ring
    std::thread::id owner_;
    int refusals_ = 0;            // refusals in a row by the queue itself
    std::vector<Piece> pieces_;   // [depth], by index of the submission
    std::vector<uint32_t> free_;  // indices without a piece
    std::span<std::byte> arena_;  // registered in parts of kBufferBytes
};

}  // namespace dslaunch::storage
