// The messages between agents and launcher that find the network on which all hosts meet: plain
// values, as those of launch/protocol/messages.h. Decoders throw Error{kInternal} on malformed
// bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

// One address of one interface of a host.
struct InterfaceAddress {
    std::string interface;    // "eth0"
    std::string address;      // digits
    int64_t speed_mbit = -1;  // -1: the kernel does not say
    bool up = false;
    bool loopback = false;
    bool for_guests = false;  // a bridge or tunnel that containers or virtual machines bring along

    bool operator==(const InterfaceAddress&) const = default;
};

// Frame kListen: to wait for the other hosts at these addresses.
struct ListenRequest {
    std::vector<std::string> addresses;  // or one name, which the host looks up
    int64_t port = 0;                    // 0: a free one for each
    int64_t node = 0;                    // node number that this host answers with
    std::string key;                     // a question that does not begin with it gets no answer
};

struct ListenReply {
    struct Place {
        std::string address;    // address in the request
        std::string numeric;    // bound address in digits
        std::string interface;  // interface with that address; empty: none
        int64_t port = 0;
        std::string error;  // reason why nothing listens there; empty: none
    };
    std::vector<Place> places;
    int64_t clock_ns = 0;  // clock of this host, since 1970
};

// An agent has descriptors for as many at once, whatever its limit.
inline constexpr size_t kProbeTargetsMax = 512;

// Frame kProbe: to connect to these places of other hosts, at most kProbeTargetsMax.
struct ProbeRequest {
    struct Target {
        int64_t node = 0;
        std::string address;  // in digits
        int64_t port = 0;
    };
    std::vector<Target> targets;
    int64_t time_max_ms = 0;  // for all of them together
    std::string key;
};

struct ProbeReply {
    struct Result {
        int64_t node = 0;
        std::string address;      // address in the request
        std::string own_address;  // own address on the way there; empty: no way
        std::string interface;    // interface with own_address
        std::string error;        // empty: the right host answered
    };
    std::vector<Result> results;  // in the order of the targets
};

// Frame kChooseNetwork: the socket at ADDRESS (as in ListenRequest) is the rendezvous, every other
// one is closed. Empty: all are.
struct ChooseRequest {
    std::string address;
};

[[nodiscard]] std::string encode(const ListenRequest& message);
[[nodiscard]] std::string encode(const ListenReply& message);
[[nodiscard]] std::string encode(const ProbeRequest& message);
[[nodiscard]] std::string encode(const ProbeReply& message);
[[nodiscard]] std::string encode(const ChooseRequest& message);

[[nodiscard]] ListenRequest decode_listen_request(std::string_view bytes);
[[nodiscard]] ListenReply decode_listen_reply(std::string_view bytes);
[[nodiscard]] ProbeRequest decode_probe_request(std::string_view bytes);
[[nodiscard]] ProbeReply decode_probe_reply(std::string_view bytes);
[[nodiscard]] ChooseRequest decode_choose_request(std::string_view bytes);

}  // namespace dslaunch::launch
