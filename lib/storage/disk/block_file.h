// The interface to data on disk: a range of bytes that is read and written in whole blocks,
// asynchronously. It hides how a machine transfers the data. Implementations: io_uring, threads,
// memory (no device), and one that wraps another and injects faults; open_block_file() chooses.
// Threads: one owner at a time. The thread that submits first is the owner from then on.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.h"

namespace dslaunch::storage {

// The addresses, offsets and lengths of requests are multiples of this, as O_DIRECT requires on any
// disk.
inline constexpr int64_t kBlockAlignment = 4096;

// The longest time that the destructor of a block file waits for requests in the device. It exceeds
// the kernel's own time-outs for disks (30 s).
inline constexpr std::chrono::seconds kIoFarewellMax{60};

// The direction of a transfer: from the disk or to it.
enum class IoDirection { kRead, kWrite };
[[nodiscard]] const char* io_direction_name(IoDirection direction);  // "read", "write"

// A transfer between memory and the bytes of the block file from OFFSET_BYTES on.
struct IoRequest {
    IoDirection direction = IoDirection::kRead;
    int64_t offset_bytes = 0;
    std::span<std::byte> memory;  // a write does not change it
};
// Return the request to read into memory, and the request to write from it.
[[nodiscard]] IoRequest read_request(int64_t offset_bytes, std::span<std::byte> into);
[[nodiscard]] IoRequest write_request(int64_t offset_bytes, std::span<const std::byte> from);

// The outcome of a request. Errors are returned, not thrown, because only the caller knows what the
// bytes are for.
struct [[nodiscard]] IoResult {
    int error_number = 0;      // negative errno of the first part that failed; 0 if none did
    int64_t moved_bytes = 0;   // fewer than requested without an error: a short transfer
    int64_t failed_bytes = 0;  // offset in the block file of the first part that failed or was
                               // short; without meaning if all parts were whole

    // Returns true if all ASKED_BYTES were transferred without an error.
    [[nodiscard]] bool has_moved(int64_t asked_bytes) const {
        return error_number == 0 && moved_bytes == asked_bytes;
    }
};

class BlockFile;

// A request in flight. The owner must call wait(); otherwise the destructor aborts the process. A
// destructor that runs because of an exception does not abort. The request then goes on until it is
// done or the BlockFile is destroyed.
class [[nodiscard]] IoTicket {
  public:
    IoTicket() = default;
    IoTicket(IoTicket&& other) noexcept;
    IoTicket& operator=(IoTicket&& other) noexcept;
    ~IoTicket();

    // Returns the number of bytes at the beginning of the request that are known to be transferred,
    // so that work on them can begin. Blocks until this number exceeds KNOWN_BYTES, or the request
    // is done. May return at once if the engine cannot measure progress. REQUIRES: the owner's
    // thread calls it, and has not called wait().
    [[nodiscard]] int64_t wait_for_front(int64_t known_bytes);
    // Blocks until the request is done. REQUIRES: called once, in the owner's thread.
    IoResult wait();

  private:
    friend class BlockFile;
    IoTicket(BlockFile& file, uint32_t entry) : file_(&file), entry_(entry) {}
    void drop();

    BlockFile* file_ = nullptr;  // null if nothing is in flight
    uint32_t entry_ = 0;
};

// The facts of an opened block file, for output and for tests.
struct BlockFileFacts {
    std::string engine;                  // "io_uring", "threads", "memory", "faulty io_uring"
    bool has_registered_memory = false;  // the kernel holds the arena's pages
    int depth = 0;                       // parts in flight at once
    Bytes block;                         // the largest part
};

// The bytes on disk, and the requests in flight for them.
class BlockFile {
  public:
    BlockFile() = default;
    BlockFile(const BlockFile&) = delete;
    BlockFile& operator=(const BlockFile&) = delete;
    // Starts nothing more and waits for the requests in flight, for at most kIoFarewellMax. Aborts
    // if requests are still left after that time, because they could write to memory that already
    // has another use. REQUIRES: the owner's thread.
    virtual ~BlockFile() = default;

    // Starts REQUEST. Its memory must stay valid until wait() has returned. If an exception
    // destroys the ticket before wait(), the memory must stay valid until this object is destroyed.
    // During a write, the memory must not change. If the queue is full, submit(), progress() and
    // wait() start the rest of the request later. REQUIRES: REQUEST is aligned to kBlockAlignment,
    // inside the capacity and not empty; there are at most requests_max tickets at once. Throws
    // Error{kSetup} if the operating system cannot make the queue.
    IoTicket submit(const IoRequest& request);

    // Starts every part that can start now and collects finished ones; never blocks. Call it
    // between pieces of other work, so that the device does not become idle.
    virtual void progress() = 0;

    // Registers ARENA, the memory that most requests will use, with the kernel. Requests with other
    // memory take more processor time. ARENA must outlive this object. If a limit forbids the
    // registration, requests work without it, and the limit is logged once. REQUIRES: called once,
    // before the first submit().
    virtual void register_memory(std::span<std::byte> arena) = 0;

    // Returns the number of bytes that can be stored.
    [[nodiscard]] virtual Bytes capacity() const = 0;
    // Returns the path of the file that stores the byte at OFFSET_BYTES, for messages.
    [[nodiscard]] virtual const std::string& path_at(int64_t offset_bytes) const = 0;
    // Returns the engine and the resources that it uses; they may change with register_memory().
    [[nodiscard]] virtual BlockFileFacts facts() const = 0;

  protected:
    friend class IoTicket;
    // Starts REQUEST, which has been checked. Returns the number that identifies it in finish() and
    // abandon().
    [[nodiscard]] virtual uint32_t start(const IoRequest& request) = 0;
    // Waits like IoTicket::wait_for_front(); an engine that cannot measure progress returns
    // KNOWN_BYTES.
    [[nodiscard]] virtual int64_t await_front(uint32_t entry, int64_t known_bytes) = 0;
    // Blocks until the request is done, and frees its entry.
    virtual IoResult finish(uint32_t entry) = 0;
    // Declares that no one will ask for the request's result.
    virtual void abandon(uint32_t entry) noexcept = 0;
};

}  // namespace dslaunch::storage
