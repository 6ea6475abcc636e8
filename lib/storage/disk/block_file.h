// The seam between data kept on disk and the way a machine moves it: a range of bytes that is read
// and written in whole blocks, asynchronously. Implementations: io_uring, threads, memory (no
// device), and one that wraps another and injects faults; open_block_file() chooses. Threads: one
// owner at a time. The thread that submits first is the owner from then on.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.h"

namespace dslaunch::storage {

// Addresses, offsets and lengths of requests are multiples of it, as O_DIRECT needs on any disk.
inline constexpr int64_t kBlockAlignment = 4096;

// The longest time that the end of a block file waits for requests in the device: longer than the
// kernel's own time-outs of disks (30 s).
inline constexpr std::chrono::seconds kIoFarewellMax{60};

enum class IoDirection { kRead, kWrite };
[[nodiscard]] const char* io_direction_name(IoDirection direction);  // "read", "write"

struct IoRequest {
    IoDirection direction = IoDirection::kRead;
    int64_t offset_bytes = 0;
    std::span<std::byte> memory;  // a write only reads it
};
[[nodiscard]] IoRequest read_request(int64_t offset_bytes, std::span<std::byte> into);
[[nodiscard]] IoRequest write_request(int64_t offset_bytes, std::span<const std::byte> from);

// The outcome of a request. It throws nothing: the caller knows the purpose of the bytes.
struct [[nodiscard]] IoResult {
    int error_number = 0;      // negative errno of the first part that failed; 0: no error
    int64_t moved_bytes = 0;   // fewer than asked for without an error: a short transfer
    int64_t failed_bytes = 0;  // offset in the block file of the first part that failed or was
                               // short; meaningless otherwise

    [[nodiscard]] bool moved(int64_t asked_bytes) const {
        return error_number == 0 && moved_bytes == asked_bytes;
    }
};

class BlockFile;

// A request in flight. It must be waited for: else the destructor aborts, unless an exception is
// passing. Then the request goes on until it is done or the BlockFile is gone.
class [[nodiscard]] IoTicket {
  public:
    IoTicket() = default;
    IoTicket(IoTicket&& other) noexcept;
    IoTicket& operator=(IoTicket&& other) noexcept;
    ~IoTicket();

    // Blocks until more than KNOWN_BYTES of the request's first bytes have moved, or nothing more
    // can be known before wait(). Returns how many have, so that work on them can begin while the
    // rest comes. REQUIRES: before wait(); the owner's thread.
    [[nodiscard]] int64_t wait_for_front(int64_t known_bytes);
    // Blocks until the request is done. REQUIRES: once; the owner's thread.
    IoResult wait();

  private:
    friend class BlockFile;
    IoTicket(BlockFile& file, uint32_t entry) : file_(&file), entry_(entry) {}
    void drop();

    BlockFile* file_ = nullptr;  // null: nothing is in flight
    uint32_t entry_ = 0;
};

// The facts of an opened block file, for output and for tests.
struct BlockFileFacts {
    std::string engine;              // "io_uring", "threads", "memory", "faulty io_uring"
    bool registered_memory = false;  // the kernel holds the arena's pages
    int depth = 0;                   // parts in flight at once
    Bytes block;                     // the largest part
};

class BlockFile {
  public:
    BlockFile() = default;
    BlockFile(const BlockFile&) = delete;
    BlockFile& operator=(const BlockFile&) = delete;
    // Starts nothing more and waits for requests in flight, at most kIoFarewellMax. Then it aborts,
    // since memory would be written without its owner's knowledge. REQUIRES: the owner's thread.
    virtual ~BlockFile() = default;

    // Starts REQUEST. Its memory must stay until it is waited for, or, if an exception drops the
    // ticket, until this object is gone; a write's must not change either. Parts beyond the depth
    // are started as others finish, in submit(), progress() and wait(). REQUIRES: alignment as
    // above, inside the capacity, not empty, at most requests_max tickets at once. Throws
    // Error{kSetup} if the machine refuses the queue itself.
    IoTicket submit(const IoRequest& request);

    // Starts every part that may start now and takes in finished ones; never blocks. Call it
    // between pieces of other work, so that the device does not run dry.
    virtual void progress() = 0;

    // Registers with the kernel, once, the memory of most requests; others work too, for more CPU.
    // ARENA must outlive this object. If a limit forbids it, requests go on without, and the limit
    // is logged once. REQUIRES: before the first submit(), once.
    virtual void register_memory(std::span<std::byte> arena) = 0;

    [[nodiscard]] virtual Bytes capacity() const = 0;
    // Returns the file on disk that holds the byte at OFFSET_BYTES, for messages.
    [[nodiscard]] virtual const std::string& path_at(int64_t offset_bytes) const = 0;
    [[nodiscard]] virtual BlockFileFacts facts() const = 0;

  protected:
    friend class IoTicket;
    // Starts REQUEST, which was checked. The result names it in finish() and abandon().
    [[nodiscard]] virtual uint32_t start(const IoRequest& request) = 0;
    // Waits like IoTicket::wait_for_front(); an engine that cannot tell returns KNOWN_BYTES.
    [[nodiscard]] virtual int64_t await_front(uint32_t entry, int64_t known_bytes) = 0;
    // Blocks until the request is done, and forgets it.
    virtual IoResult finish(uint32_t entry) = 0;
    // Says that nobody will ask for the request's result.
    virtual void abandon(uint32_t entry) noexcept = 0;
};

}  // namespace dslaunch::storage
