#include "server/http/request_answerer.h"

#include <exception>
#include <new>

#include "base/log.h"
#include "server/http/reply_writer.h"

namespace dslaunch::server {

void RequestAnswerer::answer(Connection& connection, Duration pause_max) {
    ConnectionClient client(connection.socket.get(), pause_max);
    try {
        connection.is_usable = write_answer(connection, client);
    } catch (const std::exception& error) {
        // Closing the connection shows the client that the stream is incomplete.
        connection.is_usable = false;
        try {
            log_warn("serve", "a streamed reply was cut off: {}", error.what());
        } catch (const std::exception&) {
            // Errors of logging must not end a thread.
        }
    }
}

HttpReply RequestAnswerer::reply_to(Connection& connection, const ConnectionClient& client) {
    RequestReader& reader = connection.reader;
    try {
        HttpRequest request{reader.head(), reader.body(), reader.lease()};
        return handler_.answer(request, client);
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& error) {
        return handler_.error(500, error.what());
    }
}

// Returns true if another request may follow. Passes on exceptions of the reply's stream.
bool RequestAnswerer::write_answer(Connection& connection, ConnectionClient& client) {
    const RequestHead& head = connection.reader.head();
    HttpReply reply;
    try {
        reply = reply_to(connection, client);
    } catch (const std::bad_alloc&) {
        static_cast<void>(client.write(kNoMemoryReply));
        return false;
    }
    const ReplyMode mode{.stays_open = head.stays_open && !is_ending_ && reply.status == 200 &&
                                       connection.requests < requests_max_,
                         .old = head.old,
                         .sends_body = head.method != "HEAD"};
    return write_reply(reply, mode, client) && mode.stays_open;
}

}  // namespace dslaunch::server
