// What a server is told: where it listens, whom it answers, and how a chat becomes a text.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "infer/sample/sampler.h"

namespace dslaunch::serve {

struct ServerOptions {
    std::string host = "127.0.0.1";
    int port = 8000;                  // 0: one that is free
    std::string api_key;              // what clients must send as a bearer token; empty: nothing
    std::string model;                // the name that clients see
    infer::SamplingOptions sampling;  // where a request is silent
    int64_t context = 0;              // tokens of a text, its prompt among them
    int connections_max = 512;
    int64_t body_bytes_max = int64_t{16} << 20;
};

// The text of a chat for the model, with the start of its answer. Throws Error{kInput} for messages
// that its template refuses.
using ChatRenderer = std::function<std::string(const nlohmann::ordered_json& messages,
                                               const nlohmann::ordered_json& tools)>;

}  // namespace dslaunch::serve
