"""The ways to a person, each through a connection that says where: mail over SMTP, and a chat's incoming webhook."""

from __future__ import annotations

import json
import re
from html import escape
from typing import NamedTuple
from urllib.request import Request, urlopen

from airflow.providers.smtp.hooks.smtp import SmtpHook
from airflow.sdk import Connection

#: Seconds that a webhook's server may take to answer.
_TIMEOUT = 10


class Text(NamedTuple):
    """What a notice says.

    Attributes:
        subject: one line.
        lines: of plain text.
        link: address of the page that shows more.
    """

    subject: str
    lines: tuple[str, ...]
    link: str


def mail(connection: Connection, text: Text) -> None:
    """Send the text to the addresses in the connection's extra "to". Raises whatever keeps it from being sent."""
    to = connection.extra_dejson.get("to")
    if not to:
        raise ValueError('its extra has no "to": write the addresses that notices go to, with commas between them')
    link = f'<a href="{escape(text.link)}">{escape(text.link)}</a>'
    html = "<br>\n".join([*(escape(line).replace("\n", "<br>\n") for line in text.lines), link])
    with SmtpHook(connection.conn_id) as hook:
        hook.send_email_smtp(to=to, subject=text.subject, html_content=html)


def webhook(connection: Connection, text: Text) -> None:
    """Post `{"text": ...}` to the address in the connection's password, for whoever knows it may write there.

    The text is escaped as Slack asks for, so that a reason cannot call a whole channel.
    Raises whatever keeps it from being sent, never with the address in its message.
    """
    address = connection.password or ""
    if not re.fullmatch(r"https?://[!-~]+", address):
        raise ValueError("its password must be the webhook's whole address, as https://hooks.slack.com/services/...")
    body = json.dumps({"text": escape("\n".join([text.subject, *text.lines, text.link]), quote=False)})
    request = Request(address, body.encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=_TIMEOUT):
        pass
