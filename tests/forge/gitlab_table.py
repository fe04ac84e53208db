# SPDX-License-Identifier: Apache-2.0
"""GitLab's REST API (v4) as its public documentation describes it, as far as it is asked here.

GitLab publishes an OpenAPI document (doc/api/openapi/openapi_v3.yaml), but no package of a registry has it. So this table was
written from the documentation's pages: users, projects, members, issues, notes, merge requests and pipeline schedules. Answers
have many more fields; the stand-in gives those that are read here.
"""

from .table import Endpoint, TableContract

_PAGES = {"page": int, "per_page": int}
_ORDER = {"order_by": ("created_at", "updated_at"), "sort": ("asc", "desc")}
_USER = {"id": int, "username": str, "name": str, "state": str}
_ISSUE = {
    "id": int,
    "iid": int,
    "project_id": int,
    "title": str,
    "description": (str, None),
    "state": ("opened", "closed"),
    "labels": [str],
    "author": (_USER, None),
    "web_url": str,
}
_NOTE = {"id": int, "body": str, "author": (_USER, None), "system": bool, "noteable_iid": int, "internal": bool}
_MERGE_REQUEST = {
    "id": int,
    "iid": int,
    "title": str,
    "description": (str, None),
    "state": ("opened", "closed", "locked", "merged"),
    "draft": bool,
    "labels": [str],
    "author": (_USER, None),
    "source_branch": str,
    "target_branch": str,
    "source_project_id": (int, None),
    "target_project_id": int,
    "sha": (str, None),
    "web_url": str,
}
_STATUSES = ("created", "waiting_for_resource", "preparing", "pending", "running", "success", "failed", "canceled", "skipped")
_PIPELINE = {
    "id": int,
    "iid": int,
    "project_id": int,
    "sha": str,
    "ref": str,
    "status": (*_STATUSES, "manual", "scheduled"),
    "source": str,
    "created_at": str,
    "updated_at": str,
    "web_url": str,
}
_SCHEDULE = {"id": int, "description": str, "ref": str, "cron": str, "cron_timezone": str, "active": bool, "owner": _USER}
_STATE = {"state": ("opened", "closed", "all")}
_PROJECT = "/projects/{id}"

CONTRACT = TableContract(
    {
        ("GET", "/user"): Endpoint({200: _USER}),
        ("GET", _PROJECT): Endpoint({200: {"id": int, "path_with_namespace": str, "default_branch": (str, None)}}),
        ("GET", f"{_PROJECT}/members/all"): Endpoint({200: [{**_USER, "access_level": int}]}, {**_PAGES, "query": str}),
        ("GET", f"{_PROJECT}/issues"): Endpoint({200: [_ISSUE]}, {**_PAGES, **_ORDER, **_STATE, "labels": str}),
        ("POST", f"{_PROJECT}/issues"): Endpoint(
            {201: _ISSUE}, body={"title": str, "description": str, "labels": str}, needed=frozenset({"title"})
        ),
        ("PUT", f"{_PROJECT}/issues/{{issue_iid}}"): Endpoint(
            {200: _ISSUE},
            body={"title": str, "description": str, "state_event": ("close", "reopen"), "remove_labels": str},
        ),
        ("GET", f"{_PROJECT}/issues/{{issue_iid}}/notes"): Endpoint({200: [_NOTE]}, {**_PAGES, **_ORDER}),
        ("POST", f"{_PROJECT}/issues/{{issue_iid}}/notes"): Endpoint(
            {201: _NOTE}, body={"body": str}, needed=frozenset({"body"})
        ),
        ("GET", f"{_PROJECT}/merge_requests"): Endpoint(
            {200: [_MERGE_REQUEST]},
            {**_PAGES, **_ORDER, "state": ("opened", "closed", "locked", "merged", "all"), "source_branch": str},
        ),
        ("POST", f"{_PROJECT}/merge_requests"): Endpoint(
            {201: _MERGE_REQUEST},
            body={"source_branch": str, "target_branch": str, "title": str, "description": str},
            needed=frozenset({"source_branch", "target_branch", "title"}),
        ),
        ("PUT", f"{_PROJECT}/merge_requests/{{merge_request_iid}}"): Endpoint(
            {200: _MERGE_REQUEST},
            body={"title": str, "description": str, "state_event": ("close", "reopen"), "remove_labels": str},
        ),
        ("GET", f"{_PROJECT}/pipeline_schedules"): Endpoint({200: [_SCHEDULE]}, _PAGES),
        ("GET", f"{_PROJECT}/pipeline_schedules/{{pipeline_schedule_id}}/pipelines"): Endpoint({200: [_PIPELINE]}, _PAGES),
    },
    error={"message": (str, [str], dict)},
)
