// Lets processes that one mpirun or srun started speak to each other before they know any address,
// through the PMIx library of the machine. It is opened when it is needed and never linked. One
// thread; the library runs one of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace dslaunch::launch {

class PmixSession {
  public:
    // Throws Error{kSetup}: there is no library, or nobody serves it here.
    PmixSession();
    PmixSession(PmixSession&& other) noexcept;
    // Without finish() the starter of the processes takes this one for crashed.
    ~PmixSession();

    [[nodiscard]] uint32_t rank() const;
    // Says KEY to all processes, from the next meet() on.
    void put(const std::string& key, const std::string& value);
    // Waits until all processes have come here.
    void meet();
    // Returns what process RANK put before the last meet(). Throws Error{kSetup}: it put none.
    [[nodiscard]] std::string get(uint32_t rank, const std::string& key);
    void finish();

  private:
    struct Library;
    std::unique_ptr<Library> library_;
};

}  // namespace dslaunch::launch
