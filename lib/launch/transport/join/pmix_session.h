// Exchanges values between the processes that one mpirun or srun has started. The processes need
// not know each other's addresses. Uses the machine's PMIx library, which is opened at run time and
// never linked. Used by one thread; the library runs one thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace dslaunch::launch {

// This process as a member of the group that the starter has made.
class PmixSession {
  public:
    // Throws Error{kSetup} if there is no PMIx library, or if no PMIx server serves this process.
    PmixSession();
    PmixSession(PmixSession&& other) noexcept;
    // If finish() was not called before, the starter considers this process crashed.
    ~PmixSession();

    // Returns this process's rank in the group.
    [[nodiscard]] uint32_t rank() const;
    // Publishes KEY with VALUE to all processes, from the next meet() on.
    void put(const std::string& key, const std::string& value);
    // Waits until all processes have called meet().
    void meet();
    // Returns the value that process RANK put before the last meet(). Throws Error{kSetup} if there
    // is none.
    [[nodiscard]] std::string get(uint32_t rank, const std::string& key);
    // Leaves the group.
    void finish();

  private:
    struct Library;
    std::unique_ptr<Library> library_;
};

}  // namespace dslaunch::launch
