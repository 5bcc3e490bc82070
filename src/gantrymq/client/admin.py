"""Looking after a cluster from a program: topics, groups, offsets, lags, members, settings.

```python
# not run here: needs a cluster
import gantrymq as gantry

with gantry.Admin("rmq://localhost:9876") as admin:
    admin.create_topic("orders", queues=8)
    lag = admin.group_lag("billing")
    print(lag.messages, lag.seconds)  # None means that nobody knows

    plan = admin.plan_reset("billing", "orders", "earliest")
    print(f"{plan.repeated} messages would be given to billing again")
    admin.apply_reset(plan)
```

Each method is one flow of `gantrymq.flows`, written there once with its documentation. `Admin`
steps it on the calling thread, `AsyncAdmin` awaits it. An administrator is no member of any group:
it has connections of its own and sends no heartbeats.

RocketMQ: DefaultMQAdminExt.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from gantrymq.client.config import ClientArguments, ClientConfig, load_config
from gantrymq.client.identity import Origin, now_ms
from gantrymq.client.ways import blocking_for, pool_for
from gantrymq.errors import ClosedError
from gantrymq.flows import (
    clusters,
    configs,
    explaining,
    lookup,
    members,
    open_transactions,
    previews,
    progress,
    resets,
    topic_changes,
    topics,
    traces,
)
from gantrymq.flows import group_settings as groups
from gantrymq.flows.reaching import TIMEOUT, Reach
from gantrymq.net.aio import AsyncRuntime, Pool
from gantrymq.net.network import Network
from gantrymq.protocol import names
from gantrymq.runtime import PipingRuntime, run_blocking

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])
Flow = Callable[Concatenate[Reach, P], Coroutine[object, None, T]]

_IN_NAMESPACE: Final = frozenset({"topic", "group", "source", "target"})
"""Parameters of flows that name what lives in a namespace."""


class _Admin:
    """What both faces have: settings, and a reach until they are closed."""

    def __init__(self, config: ClientConfig, timeout: float) -> None:
        self.config: Final = config
        self._timeout = timeout
        self._reach: Reach | None = None
        self._origin: Final = Origin()

    @property
    def reach(self) -> Reach:
        """What flows of administration take; for those that are no method here."""
        if self._reach is None:
            raise ClosedError(f"this {type(self).__name__} was closed, or not opened yet")
        self._origin.check(f"this {type(self).__name__}")
        return self._reach

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {';'.join(self.config.name_servers) or 'nowhere'}>"

    def _reach_by(self, runtime: PipingRuntime) -> Reach:
        return Reach(
            runtime=runtime,
            name_servers=self.config.name_servers,
            now_ms=now_ms,
            timeout=self._timeout,
            reachable=self.config.reachable,
            namespace=self.config.namespace or "",
        )


def stepped(flow: Flow[P, T]) -> Callable[Concatenate[Any, P], T]:
    """`flow` as a method that runs it to its end on the calling thread."""
    start = _starting(flow)

    def method(admin: _Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_blocking(start(admin, *args, **kwargs))

    return _dressed(method, flow)


def awaited(flow: Flow[P, T]) -> Callable[Concatenate[Any, P], Coroutine[object, None, T]]:
    """`flow` as a method to await."""
    start = _starting(flow)

    async def method(admin: _Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await start(admin, *args, **kwargs)

    return _dressed(method, flow)


def _starting(flow: Flow[P, T]) -> Callable[..., Coroutine[object, None, T]]:
    """Starts `flow` with the administrator's reach, names put into its namespace."""
    signature = inspect.signature(flow)
    named = [name for name in signature.parameters if name in _IN_NAMESPACE]

    def start(admin: _Admin, *args: Any, **kwargs: Any) -> Coroutine[object, None, T]:
        reach = admin.reach
        if not reach.namespace or not named:
            return flow(reach, *args, **kwargs)
        bound = signature.bind(reach, *args, **kwargs)
        for name in named:
            given = bound.arguments.get(name)
            if isinstance(given, str):
                bound.arguments[name] = names.wrap(reach.namespace, given)
        started: Callable[..., Coroutine[object, None, T]] = flow
        return started(*bound.args, **bound.kwargs)

    return start


def _dressed(method: M, flow: Callable[..., Any]) -> M:
    """`method` with the name, documentation and parameters of the flow."""
    functools.update_wrapper(method, flow)
    signature = inspect.signature(flow)
    first, *rest = signature.parameters.values()
    own = first.replace(name="self", annotation=inspect.Parameter.empty)
    method.__dict__["__signature__"] = signature.replace(parameters=[own, *rest])
    return method


class Admin(_Admin):
    """Looks after a cluster, on the calling thread; any number of threads may share one.

    `timeout` is for each request; an operation makes as many as it needs.

    RocketMQ: DefaultMQAdminExt.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout: float = TIMEOUT,
        **client: Unpack[ClientArguments],
    ) -> None:
        super().__init__(load_config(url, arguments=client), timeout)
        self._blocking = blocking_for(self.config)
        self._reach = self._reach_by(self._blocking.runtime)

    def close(self) -> None:
        """Close the connections."""
        self._reach = None
        if self._origin.is_here:
            self._blocking.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # clusters and brokers
    list_brokers = stepped(clusters.list_brokers)
    cluster_info = stepped(clusters.cluster_info)
    describe_cluster = stepped(clusters.describe_cluster)
    describe_broker = stepped(clusters.describe_broker)
    wipe_write_permission = stepped(clusters.wipe_write_permission)
    add_write_permission = stepped(clusters.add_write_permission)
    broker_config = stepped(configs.broker_config)
    alter_broker_config = stepped(configs.alter_broker_config)

    # name servers
    name_server_configs = stepped(configs.name_server_configs)
    alter_name_server_config = stepped(configs.alter_name_server_config)
    put_key = stepped(configs.put_key)
    get_key = stepped(configs.get_key)
    delete_key = stepped(configs.delete_key)
    list_keys = stepped(configs.list_keys)

    # topics
    list_topics = stepped(topics.list_topics)
    describe_topic = stepped(topics.describe_topic)
    topic_route = stepped(topics.topic_route)
    topic_settings = stepped(topics.topic_settings)
    all_topic_settings = stepped(topics.all_topic_settings)
    topic_status = stepped(topics.topic_status)
    groups_of_topic = stepped(topics.groups_of_topic)
    create_topic = stepped(topic_changes.create_topic)
    alter_topic = stepped(topic_changes.alter_topic)
    preview_topic_deletion = stepped(previews.preview_topic_deletion)
    delete_topic = stepped(topic_changes.delete_topic)

    # groups
    list_groups = stepped(groups.list_groups)
    group_settings = stepped(groups.group_settings)
    create_group = stepped(groups.create_group)
    alter_group = stepped(groups.alter_group)
    preview_group_deletion = stepped(previews.preview_group_deletion)
    delete_group = stepped(groups.delete_group)
    group_lag = stepped(progress.group_lag)
    backlogs = stepped(progress.backlogs)
    plan_reset = stepped(resets.plan_reset)
    apply_reset = stepped(resets.apply_reset)
    reset_offsets = stepped(resets.reset_offsets)
    plan_clone = stepped(resets.plan_clone)
    clone_offsets = stepped(resets.clone_offsets)

    # who is connected
    group_members = stepped(members.group_members)
    producers = stepped(members.producers)
    running_info = stepped(members.running_info)
    diverging = stepped(members.diverging)
    consume_directly = stepped(members.consume_directly)

    # messages
    find_message = stepped(lookup.find_message)
    message_by_offset_id = stepped(lookup.message_by_offset_id)
    messages_by_unique_id = stepped(lookup.messages_by_unique_id)
    messages_by_key = stepped(lookup.messages_by_key)
    message_at = stepped(lookup.message_at)
    spans = stepped(lookup.spans)
    explain = stepped(explaining.explain)
    trace = stepped(traces.trace)
    open_transactions = stepped(open_transactions.open_transactions)


class AsyncAdmin(_Admin):
    """The same, awaited; on the loop that it was opened on.

    RocketMQ: DefaultMQAdminExt.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout: float = TIMEOUT,
        network: Network | None = None,
        **client: Unpack[ClientArguments],
    ) -> None:
        super().__init__(load_config(url, arguments=client), timeout)
        self._network = network
        self._pool: Pool | None = None

    async def open(self) -> None:
        """Get ready; connections are made when they are needed."""
        if self._pool is None:
            self._pool = pool_for(self.config, self._network)
            self._reach = self._reach_by(AsyncRuntime(self._pool))

    async def close(self) -> None:
        """Close the connections."""
        self._reach = None
        if self._pool is not None:
            pool, self._pool = self._pool, None
            if self._origin.is_here:
                await pool.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # clusters and brokers
    list_brokers = awaited(clusters.list_brokers)
    cluster_info = awaited(clusters.cluster_info)
    describe_cluster = awaited(clusters.describe_cluster)
    describe_broker = awaited(clusters.describe_broker)
    wipe_write_permission = awaited(clusters.wipe_write_permission)
    add_write_permission = awaited(clusters.add_write_permission)
    broker_config = awaited(configs.broker_config)
    alter_broker_config = awaited(configs.alter_broker_config)

    # name servers
    name_server_configs = awaited(configs.name_server_configs)
    alter_name_server_config = awaited(configs.alter_name_server_config)
    put_key = awaited(configs.put_key)
    get_key = awaited(configs.get_key)
    delete_key = awaited(configs.delete_key)
    list_keys = awaited(configs.list_keys)

    # topics
    list_topics = awaited(topics.list_topics)
    describe_topic = awaited(topics.describe_topic)
    topic_route = awaited(topics.topic_route)
    topic_settings = awaited(topics.topic_settings)
    all_topic_settings = awaited(topics.all_topic_settings)
    topic_status = awaited(topics.topic_status)
    groups_of_topic = awaited(topics.groups_of_topic)
    create_topic = awaited(topic_changes.create_topic)
    alter_topic = awaited(topic_changes.alter_topic)
    preview_topic_deletion = awaited(previews.preview_topic_deletion)
    delete_topic = awaited(topic_changes.delete_topic)

    # groups
    list_groups = awaited(groups.list_groups)
    group_settings = awaited(groups.group_settings)
    create_group = awaited(groups.create_group)
    alter_group = awaited(groups.alter_group)
    preview_group_deletion = awaited(previews.preview_group_deletion)
    delete_group = awaited(groups.delete_group)
    group_lag = awaited(progress.group_lag)
    backlogs = awaited(progress.backlogs)
    plan_reset = awaited(resets.plan_reset)
    apply_reset = awaited(resets.apply_reset)
    reset_offsets = awaited(resets.reset_offsets)
    plan_clone = awaited(resets.plan_clone)
    clone_offsets = awaited(resets.clone_offsets)

    # who is connected
    group_members = awaited(members.group_members)
    producers = awaited(members.producers)
    running_info = awaited(members.running_info)
    diverging = awaited(members.diverging)
    consume_directly = awaited(members.consume_directly)

    # messages
    find_message = awaited(lookup.find_message)
    message_by_offset_id = awaited(lookup.message_by_offset_id)
    messages_by_unique_id = awaited(lookup.messages_by_unique_id)
    messages_by_key = awaited(lookup.messages_by_key)
    message_at = awaited(lookup.message_at)
    spans = awaited(lookup.spans)
    explain = awaited(explaining.explain)
    trace = awaited(traces.trace)
    open_transactions = awaited(open_transactions.open_transactions)
