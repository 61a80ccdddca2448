# One image with one binary for every component:
#   docker build -t tidepool:latest .
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked -p tidepool

FROM debian:bookworm-slim
COPY --from=build /src/target/release/tidepool /usr/local/bin/tidepool
# An unprivileged user; the manifests in deploy/ use the same id.
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/tidepool"]
