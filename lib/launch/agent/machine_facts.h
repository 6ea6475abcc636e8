// The facts that a host's agent tells of its machine beyond its hello, and the differences between
// hosts that break a job. On the way: hello -> machine facts -> check_machines -> start. No
// threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/network/network_messages.h"

namespace dslaunch::launch {

// The level of x86-64: 1 (any), 2 (SSE4.2), 3 (AVX2, FMA), 4 (AVX-512); 0: another architecture,
// where nothing is compared.
using IsaLevel = int;

struct MachineFacts {
    std::string machine_id;  // boot id and network namespace: equal for two names of one machine
    // Its agents see and end only processes in the same one: two pods on their host's network are
    // one machine by its addresses, and not by its processes.
    std::string process_namespace;
    std::string cpu_model;
    IsaLevel isa_level = 0;
    std::string glibc;                   // "2.36"
    std::string driver_version;          // version of NVIDIA's kernel module; empty: none is loaded
    std::vector<std::string> gpu_names;  // by PCI address
    int64_t page_bytes = 0;
    int64_t huge_pages_bytes = 0;     // reserved by the administrator
    int64_t memlock_bytes_max = 0;    // limit of one process; -1: none
    int64_t open_files_max = 0;       // -1: no limit
    int64_t shared_memory_bytes = 0;  // size of /dev/shm; 0: there is none
    std::vector<InterfaceAddress> addresses;

    bool operator==(const MachineFacts&) const = default;
};

// ROOT: "" for this machine; a test gives the folder that holds its own proc/. What cannot be read
// stays empty. Takes under a millisecond.
[[nodiscard]] MachineFacts look_at_machine(const std::string& root);

[[nodiscard]] std::string encode(const MachineFacts& facts);
// Throws Error{kInternal} on malformed bytes.
[[nodiscard]] MachineFacts decode_machine_facts(std::string_view bytes);

// One JSON object with every member, for run.json and --json.
[[nodiscard]] std::string machine_json(const MachineFacts& facts);

// The needs of dsworker that a machine may not meet.
struct WorkerNeeds {
    IsaLevel isa_level = 0;
    std::string glibc;  // the newest version that it asks for; empty: not known
    bool cuda = false;  // ranks run on GPUs
};
// WORKER: path of dsworker, which is built with the same flags as this program. Throws
// Error{kSetup} when it is no program for this machine.
[[nodiscard]] WorkerNeeds needs_of_worker(const std::string& worker, bool cuda);

// The result is by host, in words; empty where nothing breaks the job. A fact that only makes hosts
// unlike, as another kernel or CPU, is no problem. A driver counts as wrong on the hosts where it
// is not what most have (what the first of them has, when there are as many).
[[nodiscard]] std::vector<std::string> check_machines(const std::vector<MachineFacts>& machines,
                                                      const WorkerNeeds& needs);

}  // namespace dslaunch::launch
