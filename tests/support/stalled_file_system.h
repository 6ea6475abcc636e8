// A file system that never answers, so that a process that uses it cannot be killed. Needs root and
// /dev/fuse.
#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/mount.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace dslaunch::test {

// A file system that answers only the kernel's greeting. A process that asks it for a file cannot
// be killed until the file system is gone.
class StalledFileSystem {
  public:
    explicit StalledFileSystem(std::string folder) : folder_(std::move(folder)) {
        std::filesystem::create_directory(folder_);
        device_ = UniqueFd(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
        if (!device_.valid()) return;
        const std::string options = "fd=" + std::to_string(device_.get()) +
                                    ",rootmode=40000,user_id=0,group_id=0,allow_other";
        stands_ =
            ::mount("stalled", folder_.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) == 0;
        if (stands_) thread_ = std::thread([this] { serve(); });
    }
    StalledFileSystem(const StalledFileSystem&) = delete;
    StalledFileSystem& operator=(const StalledFileSystem&) = delete;
    ~StalledFileSystem() { give_way(); }
    [[nodiscard]] bool stands() const { return stands_; }
    // Returns true when a process waits for an answer.
    [[nodiscard]] bool is_asked() const { return asked_; }
    // Ends the file system. The waiting processes get an error, and can then be killed.
    void give_way() {
        if (!stands_) return;
        stands_ = false;
        ended_ = true;
        thread_.join();
        ::umount2(folder_.c_str(), MNT_DETACH);
        device_.reset();
    }

  private:
    void serve() {
        std::vector<char> request(1U << 20);
        while (!ended_) {
            pollfd entry{device_.get(), POLLIN, 0};
            if (::poll(&entry, 1, 50) <= 0) continue;
            const ssize_t n = ::read(device_.get(), request.data(), request.size());
            if (n < static_cast<ssize_t>(sizeof(fuse_in_header))) continue;
            const auto* const header = reinterpret_cast<const fuse_in_header*>(request.data());
            if (header->opcode == FUSE_INIT) {
                greet(header->unique);
            } else {
                asked_ = true;
            }
        }
    }
    void greet(uint64_t unique) const {
        struct {
            fuse_out_header header;
            fuse_init_out init;
        } reply = {};
        reply.header = {sizeof reply, 0, unique};
        reply.init.major = FUSE_KERNEL_VERSION;
        reply.init.minor = FUSE_KERNEL_MINOR_VERSION;
        reply.init.max_write = 4096;
        const ssize_t n = ::write(device_.get(), &reply, sizeof reply);
        static_cast<void>(n);
    }

    std::string folder_;
    UniqueFd device_;
    bool stands_ = false;
    std::atomic<bool> ended_ = false;
    std::atomic<bool> asked_ = false;
    std::thread thread_;
};

}  // namespace dslaunch::test
