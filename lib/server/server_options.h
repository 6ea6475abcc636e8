// The options of a server: its address, its callers, and the way a chat becomes a text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "decoder/sample/sampler.h"
#include "server/api_request.h"

namespace dslaunch::server {

struct ServerOptions {
    std::string host = "127.0.0.1";
    int port = 8000;      // 0: one that is free
    std::string api_key;  // the bearer token that clients must send; empty: none
    std::string model;    // the name that clients see
    // Defaults for requests that are silent.
    decoder::SamplingOptions sampling;
    std::optional<int64_t> tokens_max;  // tokens to make
    std::optional<int64_t> length_max;  // or tokens of a text, its prompt among them
    std::vector<std::string> stops;
    std::optional<int32_t> first_token;  // the prompt of a text without one
    int64_t context = 0;                 // tokens of a text, its prompt among them
    int answers_max = 512;               // requests that are answered at once
    int64_t body_bytes_max = int64_t{16} << 20;
    int64_t requests_bytes_max = int64_t{256} << 20;  // that all requests take in memory
};

// Returns CHAT's text for the model, made with about BYTES_MAX of memory. Throws Error{kInput} for
// messages that its template refuses or that need more memory, and for what it does not read.
using ChatRenderer = std::function<std::string(const ApiRequest& chat, int64_t bytes_max)>;

}  // namespace dslaunch::server
