// The hostfile: text -> hosts, the first step of the launcher. Pure: no host is contacted and no
// name is resolved. No threads.
//
//     # comment                         one host per line, `#` starts a comment, CRLF is accepted
//     node1 slots=4                     four slots for workers, numbered 0..3
//     node2 gpus=2,3                    two slots, on the GPUs 2 and 3
//     me@te[01-16] slots=1 port=2222    sixteen hosts te01..te16, as user `me`
//     gw slots=2 addr=10.0.0.7          connect to 10.0.0.7, call it `gw` everywhere
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/hosts/host_list.h"

namespace dslaunch::launch {

inline constexpr int kHostsMax = 65'536;  // hosts of one hostfile
inline constexpr int kSlotsMax = 4096;    // slots of one host
inline constexpr size_t kHostfileBytesMax = 4U << 20;

// One host of a hostfile.
struct Host {
    std::string name;       // IPv6 in brackets
    std::string user;       // empty: not given
    int port = 0;           // 0: not given
    std::string address;    // addr=, without brackets; empty: not given
    int slots = 0;          // == gpus.size() if gpus= was given
    std::vector<int> gpus;  // empty: slots= was given
    int line = 0;           // from 1
};

// Returns the hosts in the order of the file. Throws Error{kUsage} that lists all problems at once,
// each as FILE_NAME:line:column: …
[[nodiscard]] std::vector<Host> parse_hostfile(std::string_view text, const std::string& file_name);

// Parses the hostfile at PATH. Also throws Error{kUsage} if the file is missing, unreadable or
// larger than kHostfileBytesMax.
[[nodiscard]] std::vector<Host> read_hostfile(const std::string& path);

// Returns true for [A-Za-z0-9]([A-Za-z0-9._-]*) or a bracketed IPv6 address, at most 253
// characters. Such a text has no special meaning to a shell, to ssh or to a terminal.
[[nodiscard]] bool is_host_name(std::string_view text);

// Returns true for localhost, 127.*, [::1], or MACHINE_NAME (with or without its domain).
[[nodiscard]] bool is_this_machine(std::string_view host, std::string_view machine_name);

// The options that choose hosts and slots: --include, --exclude, --num_nodes, --num_gpus.
struct HostFilter {
    std::string include;           // NODE[:SLOT[,SLOT]][@NODE…]; empty: all
    std::string exclude;           // in the form of `include`; empty excludes nothing
    std::optional<int> num_nodes;  // the first N hosts
    std::optional<int> num_gpus;   // the first N slots of each host
};

// A chosen host and its chosen slots.
struct HostSlots {
    Host host;
    // Slot numbers in ascending order, never empty. With gpus=, a slot's number is the number of
    // its GPU (node2 gpus=2,3 has the slots 2 and 3); otherwise the slots are 0..slots-1.
    std::vector<int> slots;
};

// Returns the chosen hosts in the order of HOSTS. Throws Error{kUsage} if options exclude each
// other, a host or slot is unknown or named twice, too many hosts or slots are asked for, or
// nothing is left. The message about an unknown host suggests the nearest name.
[[nodiscard]] std::vector<HostSlots> apply_filter(const std::vector<Host>& hosts,
                                                  const HostFilter& filter);

// Returns the number of slots that HOST needs for INCLUDE (the value of --include): the highest
// slot that INCLUDE names for HOST, plus one; 0 if it names no slot. Called if HOST has no GPUs
// and the user has not given its number of workers, so that its slots are plain numbers. Throws as
// apply_filter() does on malformed text.
[[nodiscard]] int named_slots(const std::string& include, const std::string& host);

}  // namespace dslaunch::launch
